// `@grpc/grpc-js`, a gRPC client that shares no code with gRPC C++, against a cluster;
// local_cluster.py gives the addresses.
'use strict';
const assert = require('node:assert/strict');
const path = require('node:path');
const { after, test } = require('node:test');
const grpc = require('@grpc/grpc-js');
const protoLoader = require('@grpc/proto-loader');
const { activeBlocks, clientsGone, secondsUntil, kCancelSeconds } = require('./cluster_metrics');

const load = (file) => grpc.loadPackageDefinition(protoLoader.loadSync(file,
  { keepCase: true, longs: Number, enums: String, defaults: true,
    oneofs: true }));
const { Generation } =
  load(path.join(__dirname, '../../proto/baton/v1/generate.proto')).baton.v1;
const { Health } = load(path.join(__dirname, 'protos/health.proto')).grpc.health.v1;
const { ServerReflection } =
  load(path.join(__dirname, 'protos/reflection.proto')).grpc.reflection.v1alpha;

const connect = (Client) =>
  new Client(process.env.BATON_TEST_GRPC, grpc.credentials.createInsecure());
const [generation, health, reflection] = [Generation, Health, ServerReflection].map(connect);
after(() => [generation, health, reflection].forEach((client) => client.close()));

function start(request, { deadlineMs = 60_000, key = process.env.BATON_TEST_API_KEY } = {}) {
  const metadata = new grpc.Metadata();
  metadata.set('authorization', `Bearer ${key}`);
  return generation.Generate(request, metadata, { deadline: Date.now() + deadlineMs });
}

// Everything a call gave: its messages, put together, and its status.
function finish(call) {
  const answer = { text: '', tokenIds: [], promptTokenIds: [], usage: null, finishReasons: [] };
  return new Promise((resolve) => {
    call.on('data', (message) => {
      answer.text += message.text;
      answer.tokenIds.push(...message.token_ids);
      answer.promptTokenIds.push(...message.prompt_token_ids);
      answer.usage = message.usage ?? answer.usage;
      if (message.finish_reason !== 'FINISH_REASON_UNSPECIFIED') {
        answer.finishReasons.push(message.finish_reason);
      }
    });
    call.on('error', () => {});  // the status says it all
    call.on('status', (status) => resolve({ ...answer, status }));
  });
}

const greedy = { temperature: 0, max_tokens: 16, ignore_eos: true };
const endless = { text: 'A mountain is', n: 8, sampling: { max_tokens: 900, ignore_eos: true } };

test('generates from text and from its token ids alike', async () => {
  const fromText = await finish(start({ text: 'A mountain is', sampling: greedy }));
  assert.equal(fromText.status.code, grpc.status.OK, fromText.status.details);
  assert.equal(fromText.tokenIds.length, 16);
  assert.ok(fromText.text.length > 0);
  assert.deepEqual(fromText.finishReasons, ['FINISH_REASON_LENGTH']);
  assert.deepEqual(fromText.usage,
    { prompt_tokens: fromText.promptTokenIds.length, completion_tokens: 16 });

  const fromIds = await finish(
    start({ token_ids: { ids: fromText.promptTokenIds }, sampling: greedy }));
  assert.equal(fromIds.status.code, grpc.status.OK, fromIds.status.details);
  assert.deepEqual(fromIds.tokenIds, fromText.tokenIds);
  assert.equal(fromIds.text, fromText.text);
});

test('generates what the HTTP door generates', async () => {
  const overGrpc = await finish(start({ text: 'A mountain is', sampling: greedy }));
  const answer = await fetch(`${process.env.BATON_TEST_URL}/v1/completions`, {
    method: 'POST',
    headers: { authorization: `Bearer ${process.env.BATON_TEST_API_KEY}` },
    body: JSON.stringify({ prompt: 'A mountain is', ...greedy }),
  });
  assert.equal(overGrpc.text, (await answer.json()).choices[0].text);
});

test('a cancelled call frees its blocks', async () => {
  const before = await clientsGone('grpc');
  const call = start(endless);
  const ended = finish(call);
  await new Promise((resolve) => {
    let count = 0;
    call.on('data', () => { if (++count === 40) resolve(); });
    call.on('status', resolve);
  });
  assert.ok(await activeBlocks() > 0, 'the call was over before it was cancelled');

  call.cancel();

  assert.notEqual(await secondsUntil(async () => await activeBlocks() === 0, kCancelSeconds), null,
    `KV blocks still active ${kCancelSeconds} s after the cancel`);
  assert.equal((await ended).status.code, grpc.status.CANCELLED);
  assert.notEqual(
    await secondsUntil(async () => await clientsGone('grpc') > before, kCancelSeconds), null);
});

test('a deadline ends the call and its work', async () => {
  const { status } = await finish(start(endless, { deadlineMs: 150 }));
  assert.equal(status.code, grpc.status.DEADLINE_EXCEEDED, status.details);
  assert.notEqual(await secondsUntil(async () => await activeBlocks() === 0, kCancelSeconds), null,
    `KV blocks still active ${kCancelSeconds} s after the deadline`);
});

test('errors have their codes', async () => {
  const cases = [
    [grpc.status.NOT_FOUND, 'no-such-model', { model: 'no-such-model', text: 'Hi' }],
    [grpc.status.INVALID_ARGUMENT, 'temperature', { text: 'Hi', sampling: { temperature: 7 } }],
    [grpc.status.INVALID_ARGUMENT, '5000', { token_ids: { ids: Array(5000).fill(300) } }],
    [grpc.status.INVALID_ARGUMENT, 'text', {}],
  ];
  for (const [code, mention, request] of cases) {
    const { status } = await finish(start(request));
    assert.equal(status.code, code, `${mention}: ${status.details}`);
    assert.ok(status.details.includes(mention), `${mention} is not in: ${status.details}`);
  }
  const { status } = await finish(start({ text: 'Hi' }, { key: 'wrong' }));
  assert.equal(status.code, grpc.status.UNAUTHENTICATED, status.details);
});

test('the health service says SERVING', async () => {
  const check = (service) => new Promise((resolve) => {
    health.Check({ service }, { deadline: Date.now() + 10_000 },
      (error, answer) => resolve(error ? error.code : answer.status));
  });
  assert.equal(await check(''), 'SERVING');
  assert.equal(await check('baton.v1.Generation'), 'SERVING');
  assert.equal(await check('no.such.Service'), grpc.status.NOT_FOUND);
});

test('reflection lists the services', async () => {
  const names = await new Promise((resolve, reject) => {
    const call = reflection.ServerReflectionInfo({ deadline: Date.now() + 10_000 });
    call.on('data', (answer) => {
      resolve(answer.list_services_response.service.map((service) => service.name));
      call.end();
    });
    call.on('error', reject);
    call.write({ list_services: '' });
  });
  assert.ok(names.includes('baton.v1.Generation'), names.join(' '));
  assert.ok(names.includes('grpc.health.v1.Health'), names.join(' '));
});
