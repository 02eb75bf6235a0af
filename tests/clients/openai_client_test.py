"""The official `openai` package from PyPI against a cluster; local_cluster.py gives the addresses."""

import os
import re
import time
import unittest
import urllib.request

import openai

MODEL = os.environ["BATON_TEST_MODEL"]
MESSAGES = [{"role": "user", "content": "What is a mountain?"}]
PROMPT = "A mountain is"
CANCEL_SECONDS = 1.0  # a client that goes away frees its KV blocks everywhere within this


def make_client(api_key=os.environ["BATON_TEST_API_KEY"]):
    # No retries: an error must be seen, not repaired.
    return openai.OpenAI(base_url=os.environ["BATON_TEST_URL"] + "/v1", api_key=api_key,
                         max_retries=0, timeout=60)


def metric(url, series):
    """The value of one line of a /metrics page; 0 for a series that has not been counted yet."""
    with urllib.request.urlopen(url, timeout=5) as page:
        text = page.read().decode()
    found = re.search("^" + re.escape(series) + r" (\S+)$", text, re.MULTILINE)
    return float(found.group(1)) if found else 0.0


def active_blocks():
    url = os.environ["BATON_TEST_DECODE_METRICS"]
    if metric(url, "baton_kv_blocks_total_count") == 0:
        raise AssertionError(f"{url} has no KV blocks at all")
    return metric(url, 'baton_kv_blocks{state="active"}')


def clients_gone():
    return metric(os.environ["BATON_TEST_ROUTER_METRICS"],
                  'baton_requests_total{code="499",door="chat"}')


def seconds_until(condition, limit):
    """Seconds until `condition()` held, or None when it did not within `limit`."""
    start = time.monotonic()
    while (spent := time.monotonic() - start) <= limit:
        if condition():
            return spent
    return None


class OpenAiClientTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.client = make_client()

    @classmethod
    def tearDownClass(cls):
        cls.client.close()

    def test_lists_the_model(self):
        self.assertEqual([model.id for model in self.client.models.list()], [MODEL])
        self.assertEqual(self.client.models.retrieve(MODEL).id, MODEL)

    def test_chat_streams_what_it_answers_whole(self):
        arguments = dict(model=MODEL, messages=MESSAGES, temperature=0, max_tokens=24)
        whole = self.client.chat.completions.create(**arguments)
        chunks = list(self.client.chat.completions.create(
            **arguments, stream=True, stream_options={"include_usage": True}))

        text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
        finish = [chunk.choices[0].finish_reason for chunk in chunks
                  if chunk.choices and chunk.choices[0].finish_reason]
        self.assertGreater(len(text), 10)
        self.assertEqual(text, whole.choices[0].message.content)
        self.assertEqual(whole.choices[0].message.role, "assistant")
        self.assertEqual(finish, [whole.choices[0].finish_reason])
        self.assertEqual(chunks[-1].usage, whole.usage)
        self.assertEqual({chunk.id for chunk in chunks}, {chunks[0].id})

    def test_completion_streams_what_it_answers_whole(self):
        arguments = dict(model=MODEL, prompt=PROMPT, temperature=0, max_tokens=24,
                         extra_body={"ignore_eos": True})
        whole = self.client.completions.create(**arguments)
        chunks = list(self.client.completions.create(**arguments, stream=True))

        self.assertGreater(len(chunks), 2)
        self.assertEqual("".join(chunk.choices[0].text for chunk in chunks if chunk.choices),
                         whole.choices[0].text)
        self.assertEqual(whole.usage.completion_tokens, 24)
        self.assertEqual(whole.choices[0].finish_reason, "length")

    def test_gives_n_choices_that_a_seed_repeats(self):
        arguments = dict(model=MODEL, messages=MESSAGES, n=3, seed=11, temperature=1.0,
                         max_tokens=16)
        first = self.client.chat.completions.create(**arguments)
        second = self.client.chat.completions.create(**arguments)

        texts = [choice.message.content for choice in first.choices]
        self.assertEqual([choice.index for choice in first.choices], [0, 1, 2])
        self.assertEqual(texts, [choice.message.content for choice in second.choices])
        self.assertGreater(len(set(texts)), 1)

    def test_reports_log_probabilities(self):
        chat = self.client.chat.completions.create(
            model=MODEL, messages=MESSAGES, temperature=0, max_tokens=6, logprobs=True,
            top_logprobs=3)
        tokens = chat.choices[0].logprobs.content
        self.assertEqual(len(tokens), chat.usage.completion_tokens)
        self.assertTrue(chat.choices[0].message.content.startswith(tokens[0].token))
        for token in tokens:
            self.assertLessEqual(token.logprob, 0)
            self.assertEqual(len(token.top_logprobs), 3)
            # Greedy: the token taken is the best one.
            self.assertEqual(token.top_logprobs[0].token, token.token)
            self.assertEqual(bytes(token.bytes).decode(errors="replace"), token.token)

        completion = self.client.completions.create(model=MODEL, prompt=PROMPT, temperature=0,
                                                    max_tokens=6, logprobs=2)
        logprobs = completion.choices[0].logprobs
        self.assertEqual("".join(logprobs.tokens), completion.choices[0].text)
        self.assertEqual(len(logprobs.token_logprobs), 6)
        self.assertEqual(logprobs.text_offset[0], 0)

    def test_an_aborted_stream_frees_its_blocks(self):
        before = clients_gone()
        stream = self.client.chat.completions.create(
            model=MODEL, messages=MESSAGES, max_tokens=900, n=8, stream=True,
            extra_body={"ignore_eos": True})
        for count, _ in enumerate(stream):
            if count == 40:
                break
        self.assertGreater(active_blocks(), 0, "the stream was over before it was aborted")

        stream.close()

        self.assertIsNotNone(seconds_until(lambda: active_blocks() == 0, CANCEL_SECONDS),
                             f"{active_blocks()} KV blocks active {CANCEL_SECONDS} s after the abort")
        # Not because it had ended by itself meanwhile.
        self.assertIsNotNone(seconds_until(lambda: clients_gone() > before, CANCEL_SECONDS))
        # The client goes on with its other connections.
        self.assertEqual(self.client.models.retrieve(MODEL).id, MODEL)

    def test_an_unknown_model_is_not_found(self):
        with self.assertRaises(openai.NotFoundError) as raised:
            self.client.chat.completions.create(model="no-such-model", messages=MESSAGES)
        self.assertEqual(raised.exception.code, "model_not_found")
        self.assertEqual(raised.exception.param, "model")
        with self.assertRaises(openai.NotFoundError):
            self.client.models.retrieve("no-such-model")

    def test_a_bad_request_names_its_field(self):
        for param, arguments in [("temperature", dict(temperature=7)),
                                 ("max_tokens", dict(max_tokens=-1)),
                                 ("top_p", dict(extra_body={"top_p": "high"}))]:
            with self.subTest(param), self.assertRaises(openai.BadRequestError) as raised:
                self.client.chat.completions.create(model=MODEL, messages=MESSAGES, **arguments)
            self.assertEqual(raised.exception.param, param)
            self.assertEqual(raised.exception.type, "invalid_request_error")
            self.assertIn(param, raised.exception.message)

    def test_a_bad_streaming_request_fails_before_the_stream(self):
        with self.assertRaises(openai.BadRequestError) as raised:
            self.client.completions.create(model=MODEL, prompt=[300] * 5000, stream=True)
        self.assertIn("5000", raised.exception.message)

    def test_a_wrong_key_is_an_authentication_error(self):
        with make_client(api_key="wrong") as stranger:
            with self.assertRaises(openai.AuthenticationError):
                stranger.chat.completions.create(model=MODEL, messages=MESSAGES)
            with self.assertRaises(openai.AuthenticationError):
                stranger.models.list()


if __name__ == "__main__":
    unittest.main(verbosity=2)
