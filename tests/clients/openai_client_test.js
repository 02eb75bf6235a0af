// The official `openai` package from npm against a cluster; local_cluster.py gives the addresses.
'use strict';
const assert = require('node:assert/strict');
const { test } = require('node:test');
const OpenAI = require('openai');
const { activeBlocks, clientsGone, secondsUntil, kCancelSeconds } = require('./cluster_metrics');

const model = process.env.BATON_TEST_MODEL;
const messages = [{ role: 'user', content: 'What is a mountain?' }];
const prompt = 'A mountain is';

// No retries: an error must be seen, not repaired.
const makeClient = (apiKey) => new OpenAI({
  baseURL: `${process.env.BATON_TEST_URL}/v1`, apiKey, maxRetries: 0, timeout: 60_000,
});
const client = makeClient(process.env.BATON_TEST_API_KEY);

test('lists the model', async () => {
  const ids = [];
  for await (const found of client.models.list()) ids.push(found.id);
  assert.deepEqual(ids, [model]);
});

test('chat streams what it answers whole', async () => {
  const request = { model, messages, temperature: 0, max_tokens: 24 };
  const whole = await client.chat.completions.create(request);
  let text = '', finish = null, usage = null;
  const stream = await client.chat.completions.create(
    { ...request, stream: true, stream_options: { include_usage: true } });
  for await (const chunk of stream) {
    text += chunk.choices[0]?.delta?.content ?? '';
    finish = chunk.choices[0]?.finish_reason ?? finish;
    usage = chunk.usage ?? usage;
  }
  assert.ok(text.length > 10);
  assert.equal(text, whole.choices[0].message.content);
  assert.equal(finish, whole.choices[0].finish_reason);
  assert.equal(usage.total_tokens, whole.usage.total_tokens);
});

test("the package's own stream reader puts the message together", async () => {
  const request = { model, messages, temperature: 0, max_tokens: 24 };
  const whole = await client.chat.completions.create(request);
  const final = await client.chat.completions.stream(request).finalChatCompletion();
  assert.equal(final.choices[0].message.content, whole.choices[0].message.content);
});

test('completion streams what it answers whole', async () => {
  const request = { model, prompt, temperature: 0, max_tokens: 24, ignore_eos: true };
  const whole = await client.completions.create(request);
  let text = '';
  for await (const chunk of await client.completions.create({ ...request, stream: true })) {
    text += chunk.choices[0]?.text ?? '';
  }
  assert.equal(whole.usage.completion_tokens, 24);
  assert.equal(text, whole.choices[0].text);
});

test('an aborted stream frees its blocks', async () => {
  const before = await clientsGone('chat');
  const stream = await client.chat.completions.create(
    { model, messages, max_tokens: 900, n: 8, stream: true, ignore_eos: true });
  let count = 0;
  for await (const _ of stream) {
    if (++count < 40) continue;
    assert.ok(await activeBlocks() > 0, 'the stream was over before it was aborted');
    stream.controller.abort();
    break;
  }
  assert.notEqual(await secondsUntil(async () => await activeBlocks() === 0, kCancelSeconds), null,
    `KV blocks still active ${kCancelSeconds} s after the abort`);
  // Not because it had ended by itself meanwhile.
  assert.notEqual(
    await secondsUntil(async () => await clientsGone('chat') > before, kCancelSeconds), null);
});

test('an unknown model is not found', async () => {
  await assert.rejects(
    client.chat.completions.create({ model: 'no-such-model', messages }),
    (error) => error instanceof OpenAI.NotFoundError && error.code === 'model_not_found' &&
      error.param === 'model');
});

test('a bad request names its field', async () => {
  for (const [param, value] of [['temperature', 7], ['max_tokens', -1], ['top_p', 'high']]) {
    await assert.rejects(
      client.chat.completions.create({ model, messages, [param]: value }),
      (error) => error instanceof OpenAI.BadRequestError && error.param === param &&
        error.type === 'invalid_request_error', param);
  }
});

test('a wrong key is an authentication error', async () => {
  await assert.rejects(
    makeClient('wrong').chat.completions.create({ model, messages }), OpenAI.AuthenticationError);
});
