import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import {
  functionNameBytesMax,
  functionTriggersMax,
  retryDelayMsMax,
  runAttemptsMax,
  runTimeoutMsMax,
} from "../../src/domain/engine/functions/limits.ts";
import {
  canonical,
  definitionOf,
  parseStatus,
  type RegisterInput,
  requireMove,
  sameDefinition,
  slugOf,
} from "../../src/domain/engine/functions/rules.ts";
import { statusWord, toFunctionMessage } from "../../src/domain/engine/functions/wire.ts";
import { Fault } from "../../src/kit/fault.ts";
import {
  expressionBytesMax,
  functionDefinitionBytesMax,
  functionIdBytesMax,
  sleepMsMax,
} from "../../src/kit/limits.ts";

const smallest: RegisterInput = { id: "charge-card" };
const definition = (changes: Partial<RegisterInput> = {}) => definitionOf({ ...smallest, ...changes });
const faultOf = (work: () => unknown): Fault => {
  try {
    work();
  } catch (error) {
    expect(error).toBeInstanceOf(Fault);
    return error as Fault;
  }
  throw new Error("not refused");
};

describe("a registered function", () => {
  test("has defaults for everything but its id", () => {
    expect(definition()).toEqual({
      id: "charge-card",
      slug: "charge-card",
      name: "charge-card",
      description: "",
      triggers: [],
      retry: { maxAttempts: 3, initialDelayMs: 1_000, backoffFactor: 2, maxDelayMs: 300_000 },
      mode: "pull",
      recording: false,
      secrets: [],
      cancelOn: [],
    });
  });

  test("says the same in either form", () => {
    const nested = definition({
      retry: { maxAttempts: 5, initialDelayMs: 250, backoffFactor: 1.5 },
      preferredMode: "push",
      endpointUrl: "https://example.test/run",
    });
    const flat = definition({
      retryAttempts: 5,
      retryDelayMs: 250,
      retryBackoff: 1.5,
      executionMode: "push",
      endpointUrl: "https://example.test/run",
    });
    expect(sameDefinition(nested, flat)).toBe(true);
    expect(definition({ retry: { maxAttempts: 5 }, retryAttempts: 7, retryDelayMs: 9 }).retry).toMatchObject({
      maxAttempts: 5,
      initialDelayMs: 9,
    });
  });

  test("is pushed to when it has an endpoint and says nothing else", () => {
    const endpointUrl = "https://example.test/run";
    expect(definition({ endpointUrl }).mode).toBe("push");
    expect(definition({ endpointUrl, preferredMode: "pull" }).mode).toBe("pull");
    expect(definition({ executionMode: "pull" }).mode).toBe("pull");
  });

  test("may say that a retry follows at once", () => {
    expect(definition({ retryDelayMs: 0 }).retry.initialDelayMs).toBe(0);
  });

  test("may be limited, debounced, cancelled by events and triggered twice over", () => {
    const changes = {
      triggers: [
        { event: "order.placed", expression: "event.data.total > 5 && data.total > 5" },
        { event: "größe.geändert", cron: "*/5 * * * *" },
        { cron: "this is no schedule" },
      ],
      concurrency: { limit: 2, key: "data.customer" },
      debounce: { periodMs: 1_000, key: "customer", maxWaitMs: 1_000 },
      cancelOn: [{ event: "order.cancelled", match: "$.data.id" }],
      timeoutMs: 60_000,
      actorKey: "customer",
      recording: true,
      recordingProfile: "steps",
      recordingRetention: "30d",
      secrets: ["stripe"],
      metadata: { __svc_code_hash: "0123456789abcdef" },
    };
    expect(definition(changes)).toMatchObject(changes);
  });

  test("may be triggered by patterns of names, and what is empty in a trigger is absent", () => {
    const events = ["order.*", "order.>", "*", ">", "*.placed", "*.*.>"];
    expect(definition({ triggers: events.map((event) => ({ event })) }).triggers).toEqual(
      events.map((event) => ({ event })),
    );
    expect(definition({ triggers: [{ event: "", expression: "", cron: "0 3 * * *" }] }).triggers).toEqual([
      { cron: "0 3 * * *" },
    ]);
  });

  test.each(["acme/billing.charge", "fn_01", "größe", "a:b@c", "x".repeat(functionIdBytesMax)])(
    "may be called %s",
    (id) => {
      expect(definition({ id }).id).toBe(id);
    },
  );
});

describe("a refused function names the field", () => {
  const text = (bytes: number) => "x".repeat(bytes);
  test.each<[string, Partial<RegisterInput>]>([
    ["id", { id: "" }],
    ["id", { id: " " }],
    ["id", { id: "a b" }],
    ["id", { id: "a\u0000b" }],
    ["id", { id: "a\u0085b" }],
    ["id", { id: "a*" }],
    ["id", { id: "a.>" }],
    ["id", { id: "\ud800" }],
    ["id", { id: text(functionIdBytesMax + 1) }],
    ["name", { name: text(functionNameBytesMax + 1) }],
    ["name", { name: "a\u0000b" }],
    ["name", { name: "\udc00" }],
    ["slug", { slug: "Not A Slug" }],
    ["slug", { slug: "a--b" }],
    ["slug", { slug: text(101) }],
    ["triggers", { triggers: Array.from({ length: functionTriggersMax + 1 }, () => ({ event: "a" })) }],
    ["triggers[0]", { triggers: [{}] }],
    ["triggers[0]", { triggers: [{ expression: "true" }] }],
    ["triggers[1].event", { triggers: [{ event: "a" }, { event: "a b" }] }],
    ["triggers[0].event", { triggers: [{ event: "a.b*" }] }],
    ["triggers[0].event", { triggers: [{ event: "a.>.b" }] }],
    ["triggers[0].event", { triggers: [{ event: "a.**" }] }],
    ["triggers[0].event", { triggers: [{ event: "a..*" }] }],
    ["triggers[0].event", { triggers: [{ event: "a .*" }] }],
    ["cancelOn[0].event", { cancelOn: [{ event: "a.*" }] }],
    ["triggers[0].event", { triggers: [{ event: "a..b" }] }],
    ["triggers[0].event", { triggers: [{ event: text(249) }] }],
    ["triggers[0].expression", { triggers: [{ event: "a", expression: "total > 5" }] }],
    ["triggers[0].expression", { triggers: [{ event: "a", expression: "data.total >" }] }],
    ["triggers[0].expression", { triggers: [{ event: "a", expression: "'text'" }] }],
    ["triggers[0].expression", { triggers: [{ event: "a", expression: text(expressionBytesMax + 1) }] }],
    ["retry.maxAttempts", { retry: { maxAttempts: -1 } }],
    ["retry.maxAttempts", { retry: { maxAttempts: runAttemptsMax + 1 } }],
    ["retry.initialDelayMs", { retry: { initialDelayMs: -1 } }],
    ["retry.initialDelayMs", { retry: { initialDelayMs: retryDelayMsMax + 1 } }],
    ["retry.backoffFactor", { retry: { backoffFactor: 0.5 } }],
    ["retry.backoffFactor", { retry: { backoffFactor: 101 } }],
    ["retry.backoffFactor", { retry: { backoffFactor: Number.POSITIVE_INFINITY } }],
    ["retry.maxDelayMs", { retry: { maxDelayMs: -1 } }],
    ["retryAttempts", { retryAttempts: 0 }],
    ["retryAttempts", { retryAttempts: 101 }],
    ["retryDelayMs", { retryDelayMs: -1 }],
    ["retryBackoff", { retryBackoff: 0 }],
    ["retryBackoff", { retryBackoff: Number.NaN }],
    ["timeoutMs", { timeoutMs: -1 }],
    ["timeoutMs", { timeoutMs: runTimeoutMsMax + 1 }],
    ["concurrency.limit", { concurrency: { limit: -1 } }],
    ["concurrency.limit", { concurrency: { key: "data.customer" } }],
    ["debounce.periodMs", { debounce: {} }],
    ["debounce.periodMs", { debounce: { periodMs: 999 } }],
    ["debounce.maxWaitMs", { debounce: { periodMs: 2_000, maxWaitMs: 1_999 } }],
    ["debounce.maxWaitMs", { debounce: { periodMs: 2_000, maxWaitMs: sleepMsMax + 1 } }],
    ["cancelOn[0].event", { cancelOn: [{ match: "data.id" }] }],
    ["endpointUrl", { preferredMode: "push" }],
    ["endpointUrl", { executionMode: "push", endpointUrl: "" }],
    ["endpointUrl", { endpointUrl: "/relative" }],
    ["endpointUrl", { endpointUrl: "ftp://example.test/run" }],
    ["recordingProfile", { recordingProfile: "everything" }],
    ["metadata", { metadata: { blob: text(functionDefinitionBytesMax) } }],
  ])("%s of %o", (field, changes) => {
    const fault = faultOf(() => definition(changes));
    expect(fault).toMatchObject({ kind: "invalid_argument", field });
    expect(fault.message).toStartWith(`${field}: `);
    expect(fault.message.length).toBeLessThan(300);
  });
});

describe("slugs", () => {
  test.each([
    ["Charge Card!", "charge-card"],
    ["acme/billing.charge", "acme-billing-charge"],
    ["Größe ändern", "gro-e-andern"],
    ["--a--b--", "a-b"],
    ["日本", ""],
  ])("%s becomes %s", (name, slug) => {
    expect(slugOf(name)).toBe(slug);
  });

  test("hold only what stands in an address, and stay what they are", () => {
    fc.assert(
      fc.property(fc.string({ unit: "binary", maxLength: 300 }), (name) => {
        const slug = slugOf(name);
        expect(slug).toMatch(/^([a-z0-9]+(-[a-z0-9]+)*)?$/);
        expect(slug.length).toBeLessThanOrEqual(100);
        expect(slugOf(slug)).toBe(slug);
      }),
    );
  });

  test("come from the name, else from the id, else from the kind", () => {
    expect(definition({ name: "Charge Card" }).slug).toBe("charge-card");
    expect(definition({ id: "a/b", name: "日本" }).slug).toBe("a-b");
    expect(definition({ id: "日本" }).slug).toBe("function");
    expect(definition({ name: "Charge Card", slug: "pay" }).slug).toBe("pay");
  });
});

describe("one definition or two", () => {
  const shuffled = (value: unknown, turn: number): unknown => {
    if (Array.isArray(value)) return value.map((item) => shuffled(item, turn));
    if (typeof value !== "object" || value === null) return value;
    const entries = Object.entries(value).map(([key, member]) => [key, shuffled(member, turn)] as const);
    return Object.fromEntries(turn % 2 === 0 ? entries.reverse() : entries);
  };
  const metadata = fc.dictionary(
    fc.string().filter((key) => key !== "__proto__"),
    fc.jsonValue({ maxDepth: 3 }) as fc.Arbitrary<unknown>,
    { noNullPrototype: true },
  );

  test("the order of keys makes no other definition", () => {
    fc.assert(
      fc.property(metadata, fc.nat(), (given, turn) => {
        const one = definition({ metadata: given });
        const other = shuffled(JSON.parse(JSON.stringify(one)), turn) as typeof one;
        expect(sameDefinition(one, other)).toBe(true);
      }),
    );
  });

  test("equal texts mean equal values, and other values other texts", () => {
    fc.assert(
      fc.property(fc.jsonValue(), fc.jsonValue(), (one, other) => {
        const [left, right] = [one, other].map((value) => JSON.parse(JSON.stringify(value)));
        expect(canonical(left) === canonical(right)).toBe(Bun.deepEquals(left, right, true));
        expect(JSON.parse(canonical(left))).toEqual(left);
      }),
    );
  });

  test.each<Partial<RegisterInput>>([
    { metadata: { __svc_code_hash: "b" } },
    { metadata: {} },
    { name: "Other" },
    { description: "why" },
    { slug: "other" },
    { triggers: [{ event: "a" }] },
    { retryAttempts: 4 },
    { timeoutMs: 1 },
    { concurrency: { limit: 1 } },
    { debounce: { periodMs: 1_000 } },
    { endpointUrl: "http://localhost:1/" },
    { actorKey: "a" },
    { recording: true },
    { recordingProfile: "all" },
    { recordingRetention: "7d" },
    { secrets: ["a"] },
    { cancelOn: [{ event: "a", match: "" }] },
  ])("%o is a change", (changes) => {
    const before = definition({ metadata: { __svc_code_hash: "a" } });
    expect(sameDefinition(before, definition({ metadata: { __svc_code_hash: "a" }, ...changes }))).toBe(
      false,
    );
  });

  test("why it changed is none", () => {
    expect(sameDefinition(definition(), definition({ changeReason: "because" }))).toBe(true);
  });
});

describe("statuses", () => {
  const all = ["active", "paused", "archived"] as const;
  const allowed = ["active paused", "active archived", "paused active", "paused archived"];

  test("move as the table says", () => {
    const moves = all.flatMap((from) =>
      all
        .filter((to) => {
          try {
            requireMove("f", from, to);
            return true;
          } catch (error) {
            expect((error as Fault).kind).toBe("failed_precondition");
            return false;
          }
        })
        .map((to) => `${from} ${to}`),
    );
    expect(moves).toEqual(allowed);
  });

  test("are read in every spelling", () => {
    for (const word of ["paused", "PAUSED", "Paused", "FUNCTION_STATUS_PAUSED"])
      expect(parseStatus(word)).toBe("paused");
    for (const word of ["", "stopped", "FUNCTION_STATUS_UNSPECIFIED", "status_paused"])
      expect(parseStatus(word)).toBeUndefined();
    expect([0, 1, 2, 3, 4].map(statusWord).filter(Boolean)).toEqual(["active", "paused", "archived"]);
  });
});

test("a function is answered in both forms", () => {
  const message = toFunctionMessage({
    environmentId: "env_1",
    definition: definition({ retryAttempts: 5, retryDelayMs: 10, retryBackoff: 3, name: "f" }),
    status: "active",
    version: 1,
    createdAt: 1_000,
    updatedAt: 2_000,
  });
  expect(message).toMatchObject({ retryAttempts: 5, retryDelayMs: 10, retryBackoff: 3, slug: "f" });
  expect(message.retry).toMatchObject({ maxAttempts: 5, initialDelayMs: 10, backoffFactor: 3 });
  expect(message.executionMode).toBe(message.preferredMode!);
});
