import { describe, expect, test } from "bun:test";
import { Delivery } from "../../src/domain/realtime/pubsub/delivery.ts";
import { readSubscriptionOptions } from "../../src/domain/realtime/pubsub/options.ts";
import {
  frameKindsOf,
  literalRun,
  matchesTokens,
  namesOf,
  parsePattern,
  subscriptionIdOf,
  tokensOf,
  wantsRuns,
} from "../../src/domain/realtime/pubsub/rules.ts";
import { eventFrame, readClientFrame } from "../../src/domain/realtime/pubsub/socket-frames.ts";
import { Fault } from "../../src/kit/fault.ts";
import { openTrie } from "../../src/kit/trie.ts";

const codeOf = (work: () => unknown): string | undefined => {
  try {
    work();
    return "passes";
  } catch (error) {
    return error instanceof Fault ? error.code : String(error);
  }
};

describe("a pattern", () => {
  test.each([
    ["order.placed", "events:order.placed"],
    ["events:order.*", "events:order.*"],
    [">", "events:>"],
    ["entity:cart.c-1.>", "entity:cart.c-1.>"],
    ["topic:chat", "topic:chat"],
    ["system.run.*.completed", "system.run.*.completed"],
    ["system", "events:system"],
    ["systems.a", "events:systems.a"],
    ["events:a:b", "events:a:b"],
    ["events:system.a", "events:system.a"],
  ])("%s stands for %s", (text, full) => expect(parsePattern(text).text).toBe(full));

  test.each([
    "",
    ".",
    "a.",
    ".a",
    "a..b",
    ">.a",
    "a.*b",
    "a>",
    "a b",
    "a\u0000",
    "x:a",
    ":a",
    "events:",
    "system.",
    "\ud800",
  ])("%j is refused", (text) => expect(codeOf(() => parsePattern(text))).toBe("INVALID_PATTERN"));

  test("is refused above 1,024 bytes", () => {
    expect(codeOf(() => parsePattern("a".repeat(1_024)))).toBe("passes");
    expect(codeOf(() => parsePattern("é".repeat(513)))).toBe("INVALID_PATTERN");
  });

  test("says what it is about", () => {
    expect(literalRun(parsePattern("system.run.run_1.>"))).toBe("run_1");
    expect(literalRun(parsePattern("system.run.*.completed"))).toBeUndefined();
    expect(literalRun(parsePattern("run.run_1.>"))).toBeUndefined();
    expect(
      ["system.>", "system.*.x", "system.run.a.b", "system.function.>", "run.>"].map((text) =>
        wantsRuns(parsePattern(text)),
      ),
    ).toEqual([true, true, true, false, false]);
    const kindsOf = (text: string) => frameKindsOf(parsePattern(text)).join(" ");
    expect(
      Object.fromEntries(
        [
          ...[
            "system.>",
            "system.run.>",
            "system.run.r.>",
            "system.run.r.step.>",
            "system.run.*.step.*.completed",
          ],
          ...["system.run.*.completed", "system.run.*.completed.>", "system.run.*.*", "system.*.>"],
          ...[
            "system.stream.>",
            "system.group.default.g.moved",
            "system.webhook_source.*.received",
            "system.webhook_endpoint.>",
            "system.worker.w.health",
            "system.projection.p.>",
            "system.projection_health.p",
            "system.function.>",
            "events:>",
            "worker.>",
          ],
        ].map((text) => [text, kindsOf(text)]),
      ),
    ).toEqual({
      "system.>": "runs steps workers streams projections groups webhooks",
      "system.stream.>": "streams",
      "system.group.default.g.moved": "groups",
      "system.webhook_source.*.received": "webhooks",
      "system.webhook_endpoint.>": "webhooks",
      "system.run.>": "runs steps",
      "system.run.r.>": "runs steps",
      "system.run.r.step.>": "runs steps",
      "system.run.*.step.*.completed": "runs steps",
      "system.run.*.completed": "runs",
      "system.run.*.completed.>": "runs",
      "system.run.*.*": "runs",
      "system.*.>": "runs steps workers streams projections groups webhooks",
      "system.worker.w.health": "workers",
      "system.projection.p.>": "projections",
      "system.projection_health.p": "projections",
      "system.function.>": "",
      "events:>": "",
      "worker.>": "",
    });
    expect(namesOf(parsePattern("a.b"))).toEqual(["a.b", "events:a.b"]);
    expect(namesOf(parsePattern("topic:a"))).toEqual(["topic:a"]);
  });
});

describe("the trie", () => {
  const patterns = [
    "events:a",
    "events:a.*",
    "events:a.>",
    "events:*.b",
    "events:>",
    "events:a.b.c",
    "system.run.*.completed",
    "system.>",
    "events:*",
    "topic:a.b",
  ];
  const topics = [
    "events:a",
    "events:a.b",
    "events:a.b.c",
    "events:x.b",
    "system.run.r.completed",
    "system.run.a.b.completed",
    "topic:a.b",
    "entity:a.b",
  ];

  test("finds what each pattern alone would match, and nothing after it was removed", () => {
    const trie = openTrie<string>();
    for (const pattern of patterns) trie.add(parsePattern(pattern).tokens, pattern);
    for (const topic of topics) {
      const alone = patterns.filter((pattern) =>
        matchesTokens(parsePattern(pattern).tokens, tokensOf(topic)),
      );
      expect(trie.match(tokensOf(topic)).sort()).toEqual(alone.sort());
    }
    expect(trie.match(tokensOf("events:a.b")).sort()).toEqual([
      "events:*.b",
      "events:>",
      "events:a.*",
      "events:a.>",
    ]);
    for (const pattern of patterns) trie.remove(parsePattern(pattern).tokens, pattern);
    expect(trie.isEmpty()).toBe(true);
  });

  test("a thousand patterns cost those that match", () => {
    const trie = openTrie<number>();
    for (let number = 0; number < 1_000; number++) trie.add(["events", `n${number}`, "*"], number);
    expect(trie.match(["events", "n17", "x"])).toEqual([17]);
    expect(trie.match(["events", "n17"])).toEqual([]);
  });
});

describe("a subscription id", () => {
  const identity = {
    environmentId: "env_a",
    pattern: parsePattern("a.>"),
    includeMetadata: false,
    topicOnly: false,
    withPositions: false,
    filter: undefined,
    ordinal: 0,
  };
  test("follows from environment, pattern, options and ordinal", () => {
    const changes = [
      {},
      { environmentId: "env_b" },
      { pattern: parsePattern("a.*") },
      { includeMetadata: true },
      { topicOnly: true },
      { withPositions: true },
      { filter: "true" },
      { ordinal: 1 },
    ];
    const ids = changes.map((change) => subscriptionIdOf({ ...identity, ...change }));
    expect(new Set(ids).size).toBe(changes.length);
    expect(subscriptionIdOf({ ...identity, pattern: parsePattern("events:a.>") })).toBe(ids[0]!);
    expect(ids[0]).toBe("sub_69016838ff8b63befb96a1c1bd");
  });
});

describe("options", () => {
  test.each([
    [{ replay: 1_000 }, "passes"],
    [{ replay: 1_001 }, "LIMIT_EXCEEDED"],
    [{ replay: -1 }, "INVALID_ARGUMENT"],
    [{ replay: 0, startAfterSequence: 0n }, "passes"],
    [{ replay: 1, startAfterSequence: 0n }, "INVALID_ARGUMENT"],
    [{ consumerGroup: "g", startAfterSequence: 0n }, "INVALID_ARGUMENT"],
    [{ consumerGroup: "" }, "passes"],
    [{ filter: "" }, "passes"],
    [{ filter: "data.a == 1" }, "passes"],
    [{ filter: "event.data.a == 1" }, "passes"],
    [{ filter: "payload.a == 1" }, "INVALID_ARGUMENT"],
    [{ filter: "'text'" }, "INVALID_ARGUMENT"],
  ])("case %#", (options, code) =>
    expect(codeOf(() => readSubscriptionOptions({ pattern: "a", ...options }))).toBe(code),
  );
});

describe("a client's frame", () => {
  const subscribe = (options: string) =>
    readClientFrame(`{"type":"subscribe","subscription":{"pattern":"a","options":${options}}}`);
  test.each([
    ["0", 0n],
    ["9007199254740993", 9007199254740993n],
    ["18446744073709551615", 18446744073709551615n],
    ['"9007199254740993"', 9007199254740993n],
    ["null", undefined],
  ])("startAfterSequence %s keeps its digits", (written, read) => {
    const frame = subscribe(`{"startAfterSequence":${written}}`);
    expect(frame.type === "subscribe" && frame.input.startAfterSequence).toBe(read);
  });

  test.each(["-1", "1.5", "1e3", '"x"', "18446744073709551616", "true", "[]"])(
    "startAfterSequence %s is malformed",
    (written) => expect(codeOf(() => subscribe(`{"startAfterSequence":${written}}`))).toBe("INVALID_PATTERN"),
  );

  test.each([
    ["{", "the frame is not JSON"],
    ["null", "the frame is not an object"],
    ["{}", "type: must be subscribe, unsubscribe or ack"],
    ['{"type":"constructor"}', "type: must be subscribe, unsubscribe or ack"],
    ['{"type":"subscribe"}', "subscribe: subscription must be an object"],
    ['{"type":"subscribe","subscription":[]}', "subscribe: subscription must be an object"],
    ['{"type":"subscribe","subscription":{}}', "subscribe: subscription.pattern must be text"],
    ['{"type":"subscribe","subscription":{"pattern":7}}', "subscribe: subscription.pattern must be text"],
    [
      '{"type":"subscribe","subscription":{"pattern":"a","options":7}}',
      "subscribe: options must be an object",
    ],
    ['{"type":"unsubscribe","subscriptionId":null}', "unsubscribe: subscriptionId must be text"],
  ])("%s is refused: %s", (text, message) => expect(() => readClientFrame(text)).toThrow(new Error(message)));

  test.each([
    ['{"replay":"2"}', "replay: must be an integer"],
    ['{"replay":1.5}', "replay: must be an integer"],
    ['{"includeMetadata":0}', "includeMetadata: must be true or false"],
    ['{"topicOnly":"true"}', "topicOnly: must be true or false"],
    ['{"filter":{}}', "filter: must be text"],
    ['{"consumerGroup":7}', "consumerGroup: must be text"],
    ['{"startAfterSequence":-1}', "startAfterSequence: must be an unsigned 64-bit integer"],
    ['{"withStart":1}', "withStart: must be true or false"],
    ['{"epoch":"x"}', "epoch: must be an unsigned 64-bit integer"],
    ['{"epoch":"x","replay":"2"}', "replay: must be an integer"],
  ])("options %s are refused by the first that is wrong: %s", (options, message) =>
    expect(() => subscribe(options)).toThrow(new Error(message)),
  );

  test("options that are not known are passed over, null is as good as nothing", () => {
    expect(subscribe('{"ackMode":"manual","backpressure":7,"namespace":{},"replay":null,"later":1}')).toEqual(
      {
        type: "subscribe",
        input: { pattern: "a" },
      } as never,
    );
    expect(readClientFrame('{"type":"ack","eventId":"evt_1","ackType":"nak","redeliverDelay":5}')).toEqual({
      type: "ack",
      eventId: "evt_1",
      ackType: "nak",
      redeliverDelay: 5,
      subscriptionId: "",
    });
    // Its own `toString` would throw.
    expect(readClientFrame('{"type":"ack","eventId":{"toString":1,"valueOf":1},"ackType":null}')).toEqual({
      type: "ack",
      eventId: "",
      ackType: "",
      redeliverDelay: undefined,
      subscriptionId: "",
    });
  });
});

test("an event frame carries payloads as they were stored", () => {
  const { id, ...rest } = {
    id: "sub_1",
    environmentId: "env",
    pattern: parsePattern("a"),
    filter: undefined,
  };
  const spec = { id, ...rest, includeMetadata: true, topicOnly: false, withPositions: false };
  const delivery = new Delivery({
    topic: 'events:quo"te',
    eventId: "evt_1",
    data: '{"big":12345678901234567890}',
    custom: '{"a":1}',
    at: 0,
    sequence: 5,
    source: "user",
  });
  expect(eventFrame(spec, delivery)).toBe(
    '{"type":"event","subscriptionId":"sub_1","eventId":"evt_1","topic":"events:quo\\"te","data":{"big":12345678901234567890},"meta":{"timestamp":"1970-01-01T00:00:00.000Z","sequence":5,"sequenceExact":"5","custom":{"a":1}}}',
  );
  expect(eventFrame({ ...spec, includeMetadata: false, topicOnly: true }, delivery)).toBe(
    '{"type":"event","subscriptionId":"sub_1","eventId":"evt_1","topic":"events:quo\\"te","data":null}',
  );
});
