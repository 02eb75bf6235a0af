// A template comes with a model from somewhere: it must not get at anything but its inputs, nor
// hold a thread or fill the memory, whatever it does.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tests/support/fake_clock.h"
#include "tests/unit/text/chat_template_support.h"
#include "text/chat_template.h"

namespace baton::text {
namespace {

std::string Repeat(std::string_view text, int count) {
  std::string out;
  for (int i = 0; i < count; ++i) out += text;
  return out;
}

class ChatTemplateSandboxTest : public ::testing::Test {
 protected:
  // Compiles and renders with a variable `x` of each kind that requests have, and a chat.
  absl::StatusOr<std::string> Render(const std::string& source, const jinja::Limits& limits = {}) {
    auto compiled = ChatTemplate::Compile(source, {{"bos_token", "<s>"}});
    if (!compiled.ok()) return compiled.status();
    ChatTemplateInput input;
    input.messages = testing::ToValue({{{"role", "user"}, {"content", "hi"}}});
    input.extra["x"] = testing::ToValue(1);
    input.extra["text"] = testing::ToValue("text");
    input.extra["list"] = testing::ToValue({1, 2, 3});
    input.extra["dict"] = testing::ToValue({{"key", "value"}});
    return (*compiled)->Render(input, clock_, absl::UTCTimeZone(), limits);
  }
  static std::string Shorten(const std::string& source) {
    return source.size() < 200 ? source : source.substr(0, 200) + "...";
  }
  static std::int64_t PeakMemoryBytes() {
    rusage usage;
    ::getrusage(RUSAGE_SELF, &usage);
    return std::int64_t{usage.ru_maxrss} * 1024;
  }

  FakeClock clock_;
};

// In Python each of these leads to classes, modules, code or a change of the inputs.
TEST_F(ChatTemplateSandboxTest, NoAttributeLeadsOutside) {
  const std::string_view objects[] = {"''",
                                      "text",
                                      "x",
                                      "list",
                                      "dict",
                                      "[]",
                                      "{}",
                                      "()",
                                      "1",
                                      "1.5",
                                      "true",
                                      "none",
                                      "range",
                                      "range(3)",
                                      "dict",
                                      "cycler",
                                      "joiner",
                                      "namespace",
                                      "loop",
                                      "m",
                                      "self",
                                      "caller",
                                      "raise_exception",
                                      "strftime_now",
                                      "lipsum",
                                      "messages",
                                      "''.join",
                                      "dict.items()",
                                      "namespace(a=1)",
                                      "list | map('upper')"};
  const std::string_view attributes[] = {
      "__class__",   "__mro__",      "__bases__",        "__subclasses__", "__init__",
      "__globals__", "__dict__",     "__code__",         "__func__",       "__self__",
      "__module__",  "__builtins__", "__getattribute__", "__reduce__",     "func_globals",
      "gi_frame",    "gi_code",      "cr_frame",         "f_globals",      "mro",
      "__call__",    "_func",        "__doc__",          "environment",    "__wrapped__",
      "__next__"};
  for (const std::string_view object : objects) {
    for (const std::string_view attribute : attributes) {
      const std::string o(object), a(attribute);
      for (const std::string& expression : {
               absl::StrCat("(", o, ").", a),
               absl::StrCat("(", o, ")['", a, "']"),
               absl::StrCat("(", o, ") | attr('", a, "')"),
               absl::StrCat("[", o, "] | map(attribute='", a, "') | first"),
               absl::StrCat("(", o, ").", a, ".__globals__"),
               absl::StrCat("(", o, ").", a, "()"),
           }) {
        const std::string source = absl::StrCat(
            "{% macro m() %}{% endmacro %}{% for i in [1] %}{{ ", expression, " }}{% endfor %}");
        SCOPED_TRACE(source);

        const auto rendered = Render(source);

        if (rendered.ok()) {
          EXPECT_EQ(*rendered, "");
        }
      }
    }
  }
}

TEST_F(ChatTemplateSandboxTest, FormatStringsReadNoAttributes) {
  for (const char* source : {
           "{{ '{0.__class__}'.format(1) }}",
           "{{ '{0.__class__.__init__.__globals__}'.format(text) }}",
           "{{ '{x.__class__}'.format(x=text) }}",
           "{{ '{0[__class__]}'.format(list) }}",
           "{{ '{0.real}'.format(1) }}",
           "{{ '{:{0.__class__}}'.format(1) }}",
           "{{ '{x.__class__}'.format_map({'x': 1}) }}",
           "{{ ('{0.__cl' ~ 'ass__}').format(1) }}",
           "{{ '%(a.__class__)s' % {'a': 1} }}",
           "{{ '{0.__class__}' | format(1) | attr('format')(1) }}",
       }) {
    SCOPED_TRACE(source);

    const auto rendered = Render(source);

    if (rendered.ok()) {
      EXPECT_EQ(rendered->find("class '"), std::string::npos) << *rendered;
    }
    if (rendered.ok()) {
      EXPECT_EQ(rendered->find("<class"), std::string::npos) << *rendered;
    }
  }
  EXPECT_FALSE(Render("{{ '{0.__class__}'.format(1) }}").ok());
}

TEST_F(ChatTemplateSandboxTest, NothingIsLoadedCalledOrChanged) {
  for (const char* source : {
           "{% include '/etc/passwd' %}",
           "{% import 'os' as os %}",
           "{% from 'os' import path %}",
           "{% extends '/etc/passwd' %}",
           "{{ open('/etc/passwd').read() }}",
           "{{ __import__('os') }}",
           "{{ eval('1') }}",
           "{{ [].append(1) }}",
           "{{ {}.update({}) }}",
           "{{ messages.append(1) }}",
           "{{ messages.clear() }}",
           "{{ messages.pop() }}",
           "{{ messages[0].pop('role') }}",
           "{{ messages[0].update(role='x') }}",
           "{{ messages[0].setdefault('y', 1) }}",
           "{{ dict.clear() }}",
           "{{ list.sort() }}",
           "{{ list.reverse() }}",
           "{{ list.extend([1]) }}",
           "{{ list.insert(0, 1) }}",
           "{{ list.remove(1) }}",
           "{% set messages[0].role = 'x' %}",
           "{% set dict.key = 1 %}",
       }) {
    SCOPED_TRACE(source);
    EXPECT_FALSE(Render(source).ok());
  }
}

// Each would take hours or terabytes. A tenth of the usual bounds, to be done sooner.
constexpr jinja::Limits kLimits = {.max_steps = 1'000'000,
                                   .max_memory_bytes = std::size_t{32} << 20,
                                   .max_output_bytes = std::size_t{4} << 20};

TEST_F(ChatTemplateSandboxTest, BoundsTimeAndMemoryOfARun) {
  const std::int64_t before = PeakMemoryBytes();
  const std::string big = "{% set s = 'x' * 200000 %}{% set l = s | list %}";
  for (const std::string& source : {
           // Loops and recursion.
           std::string("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}"
                       "{% endfor %}"),
           std::string("{{ range(100001) }}"),
           std::string("{{ range(0, 1000000000000000) }}"),
           std::string("{{ range(-9000000000000000000, 9000000000000000000) }}"),
           std::string("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}"),
           std::string("{% macro m() %}{% call m() %}{% endcall %}{% endmacro %}{{ m() }}"),
           std::string("{% macro m(n) %}{{ m(n + 1) }}{{ m(n + 1) }}{% endmacro %}{{ m(0) }}"),
           std::string("{% set ns = namespace() %}{% macro a() %}{{ ns.b() }}{% endmacro %}"
                       "{% macro b() %}{{ ns.a() }}{% endmacro %}"
                       "{% set ns.a = a %}{% set ns.b = b %}{{ a() }}"),
           std::string("{% for i in [[1]] recursive %}{{ loop([i]) }}{% endfor %}"),
           // Strings and lists that grow.
           std::string("{{ 'x' * 1000000000000 }}"),
           std::string("{{ 1000000000000 * 'x' }}"),
           std::string("{{ [0] * 1000000000000 }}"),
           std::string("{{ (0,) * 1000000000000 }}"),
           std::string("{% set ns = namespace(x='xxxxxxxx') %}{% for i in range(99) %}"
                       "{% set ns.x = ns.x ~ ns.x %}{% endfor %}"),
           std::string("{% set ns = namespace(x='xxxxxxxx') %}{% for i in range(99) %}"
                       "{% set ns.x = ns.x + ns.x %}{% endfor %}"),
           std::string("{% set ns = namespace(x=[1]) %}{% for i in range(99) %}"
                       "{% set ns.x = ns.x + ns.x %}{% endfor %}"),
           std::string("{% set ns = namespace(x='x') %}{% for i in range(99) %}"
                       "{% set ns.x = [ns.x, ns.x] | join %}{% endfor %}"),
           std::string("{% set ns = namespace(x='x') %}{% for i in range(99) %}"
                       "{% set ns.x = ns.x | replace('x', 'xx') %}{% endfor %}"),
           std::string("{% set ns = namespace(x='x') %}{% for i in range(99) %}"
                       "{% set ns.x = '%s%s' % (ns.x, ns.x) %}{% endfor %}"),
           std::string("{% set ns = namespace(x='x') %}{% for i in range(99) %}"
                       "{% set ns.x = '{0}{0}'.format(ns.x) %}{% endfor %}"),
           std::string("{% set ns = namespace(x='\"') %}{% for i in range(99) %}"
                       "{% set ns.x = ns.x | tojson %}{% endfor %}"),
           std::string("{% set ns = namespace(x=[]) %}{% for i in range(9999) %}"
                       "{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x }}"),
           std::string("{% set ns = namespace(x=[]) %}{% for i in range(150) %}"
                       "{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x | tojson }}"),
           std::string("{% set ns = namespace(x=[]) %}{% for i in range(150) %}"
                       "{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x }}"),
           std::string("{% set ns = namespace(x=[]) %}{% for i in range(150) %}"
                       "{% set ns.x = {'a': ns.x, 'b': ns.x} %}{% endfor %}{{ ns.x == ns.x }}"
                       "{{ ns.x | string | length }}"),
           big + "{{ s.replace('x', s) }}",
           big + "{{ s | replace('x', s) }}",
           big + "{{ s.replace('', s) }}",
           big + "{{ s.join(l) }}",
           big + "{{ l | join(s) }}",
           big + "{{ ([s] * 100000) | join }}",
           big + "{{ ([s] * 100000) | string }}",
           big + "{{ ([s] * 100000) | tojson }}",
           big + "{{ [l] * 1000 }}",
           big + "{{ s | indent(1000000) }}{{ (s ~ '\n') * 100 | indent(1000000) }}",
           big + "{% for i in range(9999) %}{{ s }}{% endfor %}",
           big + "{% for i in range(9999) %}{{ s | upper | length }}{% endfor %}",
           big + "{% for i in range(9999) %}{% if s in s %}{% endif %}{% endfor %}",
           big + "{% for i in range(9999) %}{% if s == s ~ '' %}{% endif %}{% endfor %}",
           big + "{% for i in range(9999) %}{{ s[::2] | length }}{% endfor %}",
           big + "{% for i in range(9999) %}{{ s.split('x') | length }}{% endfor %}",
           big + "{% for i in range(9999) %}{{ s.count('x') }}{% endfor %}",
           big + "{% for i in range(9999) %}{{ l | sort | length }}{% endfor %}",
           big + "{% for i in range(9999) %}{{ l | unique | list | length }}{% endfor %}",
           big + "{% for i in range(9999) %}{{ l | reverse | list | length }}{% endfor %}",
           big + "{% for i in range(9999) %}{{ (s | tojson) | length }}{% endfor %}",
           // Widths, precisions and counts.
           std::string("{{ '%1000000000000d' % 1 }}"),
           std::string("{{ '%.1000000000f' % 1.5 }}"),
           std::string("{{ '%*d' % (1000000000, 1) }}"),
           std::string("{{ '{:1000000000000}'.format(1) }}"),
           std::string("{{ '{:.1000000000f}'.format(1.5) }}"),
           std::string("{{ '{:{}}'.format(1, 1000000000000) }}"),
           std::string("{{ 'x' | center(1000000000000) }}"),
           std::string("{{ 'x'.center(1000000000000) }}"),
           std::string("{{ 'x'.ljust(1000000000000) }}"),
           std::string("{{ 'x'.rjust(1000000000000) }}"),
           std::string("{{ 'x'.zfill(1000000000000) }}"),
           std::string("{{ '\t'.expandtabs(1000000000000) }}"),
           std::string("{{ 'a' | indent(1000000000000, true) }}"),
           std::string("{{ [1, [2]] | tojson(indent=1000000000000) }}"),
           big + "{{ " + Repeat("[", 100) + Repeat("]", 100) + " | tojson(indent=s * 100) }}",
           std::string("{{ [1] | batch(1000000000000, 'x') | list }}"),
           std::string("{{ [1] | slice(1000000000000) | list }}"),
           std::string("{{ 9223372036854775807 + 1 }}"),
           std::string("{{ 2 ** 64 }}"),
           std::string("{{ 10 ** 10 ** 10 }}"),
       }) {
    SCOPED_TRACE(Shorten(source));
    const absl::Time start = absl::Now();

    const auto rendered = Render(source, kLimits);

    EXPECT_FALSE(rendered.ok()) << rendered->size() << " bytes";
    EXPECT_LT(absl::Now() - start, absl::Seconds(20));  // a sanitizer takes ten times as long
  }
  EXPECT_LT(PeakMemoryBytes() - before, std::int64_t{2} << 30);
}

TEST_F(ChatTemplateSandboxTest, TheUsualBoundsEndARunToo) {
  const absl::Time start = absl::Now();

  for (const char* source :
       {"{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
        "{% set ns = namespace(x='xxxxxxxx') %}{% for i in range(99) %}"
        "{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
        "{% for i in range(99999) %}{{ 'x' * 99999 }}{% endfor %}"}) {
    EXPECT_EQ(Render(source).status().code(), absl::StatusCode::kResourceExhausted) << source;
  }

  EXPECT_LT(absl::Now() - start, absl::Seconds(60));
}

// Deep nesting must end in an error before the parser's stack does.
TEST_F(ChatTemplateSandboxTest, BoundsTheNestingOfASource) {
  constexpr int kDeep = 100'000;
  for (const auto& [open, close] : {
           std::pair("(", ")"),
           std::pair("[", "]"),
           std::pair("{1:", "}"),
           std::pair("not ", ""),
           std::pair("-", ""),
           std::pair("x[", "]"),
           std::pair("x(", ")"),
           std::pair("1 + ", ""),
           std::pair("1 ** ", ""),
           std::pair("x if x else ", ""),
           std::pair("x ~ ", ""),
           std::pair("x and ", ""),
           std::pair("x < ", ""),
           std::pair("x if ", " else x"),
       }) {
    SCOPED_TRACE(open);
    const absl::Time start = absl::Now();

    const auto rendered =
        Render(absl::StrCat("{{ ", Repeat(open, kDeep), "1", Repeat(close, kDeep), " }}"));

    EXPECT_LT(absl::Now() - start, absl::Seconds(30));
    if (rendered.ok()) {
      EXPECT_LT(rendered->size(), 1'000'000u);
    }
  }
  for (const auto& [open, close] : {
           std::pair("{% if x %}", "{% endif %}"),
           std::pair("{% for i in x %}", "{% endfor %}"),
           std::pair("{% filter upper %}", "{% endfilter %}"),
           std::pair("{% with %}", "{% endwith %}"),
           std::pair("{% set y %}", "{% endset %}"),
           std::pair("{% macro m() %}", "{% endmacro %}"),
           std::pair("{% call m() %}", "{% endcall %}"),
           std::pair("{% generation %}", "{% endgeneration %}"),
       }) {
    SCOPED_TRACE(open);
    EXPECT_FALSE(Render(absl::StrCat(Repeat(open, kDeep / 10), Repeat(close, kDeep / 10))).ok());
  }
  for (const std::string& chain :
       {Repeat(" | trim", kDeep), Repeat(".a", kDeep), Repeat("[0]", kDeep), Repeat("()", kDeep),
        Repeat(" is string", kDeep)}) {
    SCOPED_TRACE(chain.substr(0, 8));
    (void)Render(absl::StrCat("{{ x", chain, " }}"));  // returns
  }
}

TEST_F(ChatTemplateSandboxTest, BoundsTheSizeOfASource) {
  EXPECT_FALSE(Render(std::string(5 << 20, 'x')).ok());
}

// The probes at Compile run the template too.
TEST_F(ChatTemplateSandboxTest, ATemplateThatNeverEndsCompilesSoon) {
  const absl::Time start = absl::Now();

  const auto compiled = ChatTemplate::Compile(
      "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", {});

  EXPECT_TRUE(compiled.ok()) << compiled.status();
  EXPECT_LT(absl::Now() - start, absl::Seconds(20));
}

}  // namespace
}  // namespace baton::text
