import { describe, expect, test } from "bun:test";
import { Type } from "@sinclair/typebox";
import { type Edge, RequestCall } from "../../src/edge/call.ts";
import { keepAuthorized, openReauthorizer } from "../../src/edge/reauthorize.ts";
import type { Caller } from "../../src/kit/caller.ts";
import { systemClock } from "../../src/kit/clock.ts";
import { Fault } from "../../src/kit/fault.ts";
import { systemIds } from "../../src/kit/ids.ts";
import { silentLog } from "../../src/kit/log.ts";
import { unary } from "../../src/kit/operation.ts";

const clock = systemClock();
const operation = unary({
  name: "a.b",
  action: "runs:read",
  summary: "",
  input: Type.Object({}),
  handle: () => ({}),
});
const caller: Caller = { kind: "key", id: "ak_1", orgId: "org_1", roles: [] };

function standingAt(changes: Partial<Edge> = {}) {
  const standing = openReauthorizer({ clock });
  const asked = { authenticate: 0, gate: 0, guard: [] as unknown[] };
  const edge: Edge = {
    clock,
    ids: systemIds(clock),
    log: silentLog,
    reauthorizer: standing,
    async authenticate() {
      asked.authenticate++;
      return { caller, environmentId: "env_of_now" };
    },
    gate: () => void asked.gate++,
    guard: (_call, _operation, input) => void asked.guard.push(input),
    observe() {},
    ...changes,
  };
  const enter = (key: string, inputs: readonly unknown[] = [{}]) => {
    const request = new Request("http://here/a", { headers: { authorization: `Bearer ${key}` } });
    const call = new RequestCall(
      request,
      "req_1",
      0,
      { caller, environmentId: "env_1" },
      { operation, screen: undefined },
    );
    return { call, ...keepAuthorized(edge, operation, call, () => inputs) };
  };
  return { standing, asked, enter };
}

describe("calls that stand", () => {
  test("are asked about as often as they are looked at, those of one credential by one look-up", async () => {
    const { standing, asked, enter } = standingAt();
    const stands = [enter("one", [{ a: 1 }, { a: 2 }]), enter("one"), enter("two")];
    await standing.reauthorizeOnce();
    expect([asked.authenticate, asked.gate, asked.guard.length]).toEqual([2, 3, 4]);
    expect(stands.every(({ refused, call }) => refused() === undefined && !call.signal.aborted)).toBe(true);
    for (const { leave } of stands) leave();
    expect(standing.size()).toBe(0);
    await standing.reauthorizeOnce();
    expect(asked.authenticate).toBe(2);
  });

  test.each([
    ["the credential", { authenticate: () => Promise.reject(new Fault("unauthenticated", "gone")) }],
    [
      "the role",
      {
        gate() {
          throw new Fault("permission_denied", "no more");
        },
      },
    ],
    [
      "a policy",
      {
        async guard() {
          throw new Fault("permission_denied", "denied");
        },
      },
    ],
  ] as [string, Partial<Edge>][])("end when %s says so, with that fault", async (_what, changes) => {
    const { standing, enter } = standingAt(changes);
    const { call, refused } = enter("one");
    expect(call.signal.aborted).toBe(false);
    await standing.reauthorizeOnce();
    expect(refused()).toBeInstanceOf(Fault);
    expect(call.signal.aborted).toBe(true);
    expect(call.signal.reason).toBe(refused());
  });

  test.each(["unavailable", "internal", "resource_exhausted", "deadline_exceeded"] as const)(
    "stay when the answer is %s: that says nothing of the caller",
    async (kind) => {
      const fail = () => {
        throw new Fault(kind, "later");
      };
      for (const changes of [{ authenticate: async () => fail() }, { gate: fail }, { guard: fail }]) {
        const { standing, enter } = standingAt(changes as Partial<Edge>);
        const { refused } = enter("one");
        await standing.reauthorizeOnce();
        expect(refused()).toBeUndefined();
      }
    },
  );

  test("of an environment that is just deleted end once it was noticed, and are told of it first", async () => {
    let isGoing = true;
    const { standing, enter } = standingAt({
      authenticate: () => Promise.reject(new Fault("unauthenticated", "gone")),
      isGoing: async (id) => isGoing && id === "env_1",
    });
    const { refused } = enter("one");
    await standing.reauthorizeOnce();
    expect(refused()).toBeUndefined();
    isGoing = false;
    await standing.reauthorizeOnce();
    expect(refused()?.message).toBe("gone");
  });

  test("are judged where they stand, whatever the request would be let into now", async () => {
    const places: string[] = [];
    const { standing, enter } = standingAt({ gate: (call) => void places.push(call.environmentId) });
    enter("one");
    await standing.reauthorizeOnce();
    expect(places).toEqual(["env_1"]);
  });

  test("in great numbers let others have their turn", async () => {
    const { standing, enter } = standingAt({
      gate() {
        const since = performance.now();
        while (performance.now() - since < 0.5);
      },
    });
    for (let count = 0; count < 100; count++) enter(`key ${count % 10}`);
    let turns = 0;
    let over = false;
    const looking = standing.reauthorizeOnce().then(() => {
      over = true;
    });
    while (!over) {
      await new Promise((done) => setImmediate(done));
      turns++;
    }
    await looking;
    expect(turns).toBeGreaterThan(5);
  });
});
