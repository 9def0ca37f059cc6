import { describe, expect, test } from "bun:test";
import { Type } from "@sinclair/typebox";
import fc from "fast-check";
import { type Action, actions, builtInRoles, roleGrants, roleIdOf } from "../../src/gate/actions.ts";
import { openGate, requireKnownActions } from "../../src/gate/gate.ts";
import { compilePolicy, type PolicyError, type PolicyText } from "../../src/gate/policy.ts";
import {
  irnOf,
  overlap,
  parsePattern,
  part,
  type Resource,
  typeOfAction,
  typeOfPath,
} from "../../src/gate/resource.ts";
import { type AccessSnapshot, type SnapshotRows, snapshotOf } from "../../src/gate/snapshot.ts";
import type { Caller } from "../../src/kit/caller.ts";
import { testClock } from "../../src/kit/clock.ts";
import { Fault } from "../../src/kit/fault.ts";
import { unary } from "../../src/kit/operation.ts";

const all = Object.keys(actions) as Action[];
const tenantActions = all.filter((action) => !action.startsWith("platform:"));
const held = (role: string) => all.filter((action) => roleGrants([role], action));
const caller = (...roles: string[]): Caller => ({ kind: "key", id: "ak_1", orgId: "org_1", roles });

describe("roles", () => {
  test("admin holds every tenant action, and of the platform's only the one that creating an org costs", () => {
    expect(held("admin")).toEqual([...tenantActions, "platform:tenants:manage"]);
  });

  test("each role holds all that the next weaker one holds", () => {
    expect(held("admin")).toEqual(expect.arrayContaining(held("developer")));
    expect(held("developer")).toEqual(expect.arrayContaining(held("viewer")));
    expect(held("platform_admin")).toEqual(expect.arrayContaining(held("platform_operator")));
    expect(held("platform_operator")).toEqual(expect.arrayContaining(held("platform_viewer")));
  });

  test("a viewer only reads", () => {
    expect(held("viewer").filter((action) => !/:(read|list|subscribe)$/.test(action))).toEqual([]);
    expect(held("platform_viewer").filter((action) => !action.endsWith(":read"))).toEqual([]);
  });

  test("the platform admin holds every platform action and no tenant action", () => {
    expect(held("platform_admin")).toEqual(all.filter((action) => action.startsWith("platform:")));
  });

  test("a role may be named by its id, and grants add up", () => {
    for (const role of builtInRoles) expect(held(roleIdOf(role))).toEqual(held(role));
    expect(roleGrants(["viewer", "role_developer"], "events:emit")).toBe(true);
  });

  test("no role, an unknown role and a custom role grant nothing", () => {
    for (const roles of [[], ["owner"], ["role_01abc"], ["constructor"], ["__proto__"]]) {
      expect(all.filter((action) => roleGrants(roles, action))).toEqual([]);
    }
  });
});

const orgOf = (rows: Partial<SnapshotRows>): AccessSnapshot =>
  snapshotOf({ orgId: "org_1", version: 1, roles: [], policies: [], assigned: [], ...rows });

function gateFor(snapshot: AccessSnapshot, at = Date.UTC(2026, 0, 5, 12)) {
  const asked: string[] = [];
  const gate = openGate({
    snapshots: {
      known: () => snapshot,
      of: async () => snapshot,
    },
    async scopeOf(id) {
      asked.push(id);
      return { orgId: "org_1", name: "production", projectId: "proj_1" };
    },
    clock: testClock(at),
  });
  return { ...gate, asked };
}

const asking = (action: string | null) =>
  unary({ name: "a.b", action, summary: "", input: Type.Object({}), handle: () => ({}) });

const calling = (...roles: string[]) => ({ caller: caller(...roles), environmentId: "env_1" });

describe("gate", () => {
  const { gate } = gateFor(orgOf({ roles: [{ id: "role_own", name: "support", base: "developer" }] }));

  test("lets pass what is granted", () => {
    expect(() => gate(calling("developer"), asking("events:emit"))).not.toThrow();
  });

  test("refuses in the words of the spec, with the action and the built-in roles that have it", () => {
    expect(() => gate(calling("viewer"), asking("events:emit"))).toThrow(
      new Fault("permission_denied", "Insufficient permissions: events:emit is granted by admin, developer"),
    );
  });

  test("roles of its own are named to a caller that may list them", () => {
    const platform = gateFor(
      orgOf({
        roles: [
          { id: "role_own", name: "rescue", base: "platform_operator" },
          { id: "role_read", name: "watch", base: "platform_viewer" },
          { id: "role_bare", name: "bare", base: "" },
        ],
      }),
    );
    const call = (role: string) => ({
      caller: { ...caller(role), kind: "platform" as const },
      environmentId: "",
    });
    const named =
      "Insufficient permissions: platform:tenants:manage is granted by platform_admin, platform_operator";
    const asked = asking("platform:tenants:manage");
    expect(() => platform.gate(call("role_read"), asked)).toThrow(
      new Fault("permission_denied", `${named}, rescue`),
    );
    expect(() => platform.gate(call("role_bare"), asked)).toThrow(new Fault("permission_denied", named));
  });

  test("a custom role grants what its base grants, to whoever carries its id: its name may be another's by now", () => {
    expect(() => gate(calling("role_own"), asking("events:emit"))).not.toThrow();
    for (const [role, action] of [
      ["role_own", "users:read"],
      ["support", "events:emit"],
      ["role_gone", "runs:read"],
    ])
      expect(() => gate(calling(role!), asking(action!))).toThrow("Insufficient permissions");
  });

  test("a custom role without a base grants nothing", () => {
    const bare = gateFor(orgOf({ roles: [{ id: "role_bare", name: "bare", base: "" }] }));
    for (const action of tenantActions)
      expect(() => bare.gate(calling("role_bare"), asking(action))).toThrow("Insufficient permissions");
  });

  test("an action nobody has heard of is a defect, even for an admin", () => {
    expect(() => gate(calling("admin"), asking("events:eat"))).toThrow("unknown action events:eat");
    expect(() => gate(calling("admin"), asking("toString"))).toThrow("unknown action toString");
  });
});

describe("resource patterns", () => {
  const resource: Resource = {
    orgId: "org_1",
    projectId: "proj_1",
    type: "function",
    environmentId: "env_1",
    environmentName: "production",
    id: "a:b%c",
  };
  const cases: [string, boolean][] = [
    ["*", true],
    ["irn:svc:*:*:*:*:*", true],
    ["irn:svc:org_1:proj_1:function:env_1:*", true],
    ["irn:svc:*:*:function:production:*", true],
    ["irn:svc:*:*:function:prod*:*", true],
    ["irn:svc:*:*:function:*ion:*", true],
    ["irn:svc:*:*:function:p*d*n:*", true],
    ["irn:svc:*:*:function:p*x*n:*", false],
    ["irn:svc:*:*:run:*:*", false],
    ["irn:svc:org_2:*:*:*:*", false],
    // A colon in a name is written %3A, so that it cannot slip past a pattern of seven segments.
    ["irn:svc:*:*:*:*:a%3Ab%25c", true],
    ["irn:svc:*:*:*:*:a*", true],
  ];
  for (const [pattern, holds] of cases)
    test(`${pattern} ${holds ? "matches" : "does not match"}`, () => {
      expect(parsePattern(pattern)!.matches(resource)).toBe(holds);
    });

  test("what does not begin as a name does is no pattern", () => {
    for (const text of ["", "**", "irn:svc", "irn:other:*:*:*:*:*"])
      expect(parsePattern(text)).toBeUndefined();
  });

  test("what has another number of segments matches nothing, and says so", () => {
    const where = { orgId: "org_1", types: new Set(["function", "run"]) };
    for (const text of ["irn:svc:*", "irn:svc:*:*:*:*:*:*", "irn:svc::*:*:*:*"]) {
      const pattern = parsePattern(text)!;
      expect(pattern.matches(resource)).toBe(false);
      expect(pattern.warning(where)).toStartWith("matches nothing: expected the seven segments");
    }
    const warning = (text: string) => parsePattern(text)!.warning(where);
    expect(warning("irn:svc:*:*:functions:*:*")).toBe("matches nothing: unknown resource type functions");
    expect(warning("irn:svc:org_2:*:*:*:*")).toBe("matches nothing: it names another org");
    for (const text of ["*", "irn:svc:*:*:*:*:*", "irn:svc:org_*:*:fun*:gone:gone"])
      expect(warning(text)).toBeUndefined();
    expect(parsePattern("irn:svc:org_2:*:run:*:*")!.warning({ ...where, orgId: undefined })).toBeUndefined();
  });

  test("any name survives being written", () => {
    fc.assert(
      fc.property(fc.string({ minLength: 1 }), (id) => {
        const written = irnOf({ ...resource, id });
        expect(written.split(":").length).toBe(7);
        expect(parsePattern("irn:svc:*:*:*:*:*")!.matches({ ...resource, id })).toBe(true);
      }),
    );
  });

  test("types follow the route, else the action", () => {
    expect(typeOfPath("/api/v1/runs/{id}/streams")).toBe("run");
    expect(typeOfPath("/api/v1/apikeys/{id}")).toBe("apikeys");
    expect(typeOfPath("/api/v1/policies")).toBe("policy");
    expect(typeOfPath("/api/v1/platform/users")).toBe("user");
    expect(typeOfAction("entities:append")).toBe("stream");
    expect(typeOfAction("agent:tools:invoke")).toBe("agent-tool");
  });
});

describe("deny policies", () => {
  const policy = (text: Partial<PolicyText>): PolicyText => ({
    id: "pol_1",
    name: "one",
    actions: "*",
    resources: "*",
    condition: "",
    ...text,
  });
  const emitting = unary({
    name: "events.emit",
    action: "events:emit",
    summary: "",
    input: Type.Object({ event: Type.String() }),
    handle: () => ({}),
  });
  const outcome = async (text: Partial<PolicyText>, roles: string[], at?: number) => {
    const snapshot = orgOf({
      policies: [policy(text)],
      assigned: [{ roleId: "role_developer", policyId: "pol_1" }],
    });
    try {
      await gateFor(snapshot, at).guard(calling(...roles), emitting, { event: "order.placed" });
      return "allowed";
    } catch (error) {
      return (error as Error).message;
    }
  };
  const denied = "Insufficient permissions";

  test("a policy of one of the caller's roles denies; of another role it does not", async () => {
    expect(await outcome({}, ["developer"])).toBe(denied);
    expect(await outcome({}, ["role_developer"])).toBe(denied);
    expect(await outcome({}, ["admin"])).toBe("allowed");
  });

  test("an admin is told which policy it was", async () => {
    expect(await outcome({}, ["admin", "developer"])).toBe(
      'Insufficient permissions: denied by policy "one" (pol_1)',
    );
  });

  test("actions and resources narrow it", async () => {
    expect(await outcome({ actions: "runs:*" }, ["developer"])).toBe("allowed");
    expect(await outcome({ actions: "runs:*, events:emit" }, ["developer"])).toBe(denied);
    expect(await outcome({ resources: "irn:svc:*:*:event:production:order.*" }, ["developer"])).toBe(denied);
    expect(await outcome({ resources: "irn:svc:*:*:event:staging:*" }, ["developer"])).toBe("allowed");
  });

  test("a condition decides, over subject, request, resource and time", async () => {
    const noon = Date.UTC(2026, 0, 5, 12);
    for (const [condition, expected] of [
      ['resource.id.startsWith("order.")', denied],
      ['resource.environment == "staging"', "allowed"],
      ['"developer" in subject.roles && subject.kind == "key"', denied],
      ['request.action == "events:emit" && !request.reads', denied],
      ["time.hour < 8 || time.hour >= 18", "allowed"],
      ['time.now.getHours("America/New_York") == 7', denied],
      ["time.weekday == 1", denied],
    ])
      expect(`${condition} ${await outcome({ condition: condition! }, ["developer"], noon)}`).toBe(
        `${condition} ${expected}`,
      );
  });

  test("a condition that cannot be evaluated denies", async () => {
    expect(await outcome({ condition: "resource.missing == 1" }, ["developer"])).toBe(denied);
    expect(await outcome({ condition: "subject.id.size() / 0 > 1" }, ["developer"])).toBe(denied);
  });

  test("a stored policy that no longer compiles denies everything to its roles", async () => {
    expect(await outcome({ condition: "this is no CEL" }, ["developer"])).toBe(denied);
    expect(await outcome({ condition: "this is no CEL" }, ["viewer"])).toBe("allowed");
  });

  test("the environment is looked up only where a policy might hold", async () => {
    const snapshot = orgOf({ policies: [policy({})], assigned: [] });
    const { guard, asked } = gateFor(snapshot);
    expect(guard(calling("developer"), emitting, { event: "a" })).toBeUndefined();
    expect(asked).toEqual([]);
  });

  test("what a batch is about is asked for each", async () => {
    const batch = unary({
      name: "events.batch",
      action: "events:emit",
      summary: "",
      input: Type.Object({ events: Type.Array(Type.String()) }),
      about: ({ events }: { events: string[] }) => events,
      handle: () => ({}),
    });
    const snapshot = orgOf({
      policies: [policy({ resources: "irn:svc:*:*:event:*:secret.*" })],
      assigned: [{ roleId: "role_developer", policyId: "pol_1" }],
    });
    const { guard } = gateFor(snapshot);
    await expect(guard(calling("developer"), batch, { events: ["a", "b"] })).resolves.toBeUndefined();
    await expect(guard(calling("developer"), batch, { events: ["a", "secret.b"] })).rejects.toThrow(denied);
  });

  test("what is wrong with a policy is named", () => {
    const wrong = (text: Partial<PolicyText>) => {
      try {
        compilePolicy(policy(text));
        return undefined;
      } catch (error) {
        return `${(error as PolicyError).field}: ${(error as Error).message}`;
      }
    };
    expect(wrong({ actions: "" })).toBe("actions: at least one action");
    expect(wrong({ actions: "runs eat" })).toBe(
      'actions: invalid action pattern "runs eat" (an action such as runs:cancel, or runs:*)',
    );
    expect(wrong({ resources: "function:*" })).toStartWith(
      'resources: invalid resource pattern "function:*"',
    );
    expect(wrong({ condition: "1 + 1" })).toBe("condition: must be true or false, not int");
    expect(wrong({ condition: "owner == 1" })).toStartWith("condition: ");
  });
});

test("a misspelt action is found at the start", () => {
  expect(() => requireKnownActions(["runs:read", "authenticated", null].map(asking))).not.toThrow();
  expect(() => requireKnownActions([asking("runs:raed")])).toThrow(
    "operation a.b asks for an unknown action: runs:raed",
  );
});

describe("two patterns overlap", () => {
  test.each([
    ["salary.*", "*.paid", true],
    ["salary.*", "*", true],
    ["salary.*", "wage.*", false],
    ["salary.paid", "salary.*", true],
    ["salary.paid", "salary.due", false],
    ["events%3Asalary.*", "events%3A*", true],
    ["a*b*c", "*x*", true],
    ["a*b", "b*", false],
    ["", "*", true],
    ["", "a*", false],
    ["**", "", true],
  ])("%s and %s: %p", (one, other, expected) => {
    expect([overlap(one, other), overlap(other, one)]).toEqual([expected, expected]);
  });

  test("as often as some text is matched by both", () => {
    const glob = fc.string({ unit: fc.constantFrom("a", "b", "*"), maxLength: 5 });
    const texts = ["", "a", "b"].flatMap((one) =>
      ["", "a", "b", "ab", "ba", "aa", "bb"].map((two) => one + two),
    );
    fc.assert(
      fc.property(glob, glob, (one, other) => {
        const isBoth = texts.some((text) => part(one)(text) && part(other)(text));
        if (isBoth) expect(overlap(one, other)).toBe(true);
        expect(overlap(one, other)).toBe(overlap(other, one));
        if (!one.includes("*")) expect(overlap(one, other)).toBe(part(other)(one));
      }),
    );
  });
});
