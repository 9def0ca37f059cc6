import { describe, expect, test } from "bun:test";
import { Type } from "@sinclair/typebox";
import { type Action, actions, builtInRoles, roleGrants, roleIdOf } from "../../src/access/actions.ts";
import { gate, requireKnownActions } from "../../src/access/gate.ts";
import { Fault } from "../../src/kit/fault.ts";
import { type Caller, unary } from "../../src/kit/operation.ts";

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

describe("gate", () => {
  test("lets pass what is granted", () => {
    expect(() => gate(caller("developer"), "events:emit")).not.toThrow();
  });

  test("refuses in the words of the spec", () => {
    expect(() => gate(caller("viewer"), "events:emit")).toThrow(
      new Fault("permission_denied", "Insufficient permissions"),
    );
  });

  test("an action nobody has heard of is a defect, even for an admin", () => {
    expect(() => gate(caller("admin"), "events:eat")).toThrow("unknown action events:eat");
    expect(() => gate(caller("admin"), "toString")).toThrow("unknown action toString");
  });
});

test("a misspelt action is found at the start", () => {
  const asking = (action: string | null) =>
    unary({ name: "a.b", action, summary: "", input: Type.Object({}), handle: () => ({}) });
  expect(() => requireKnownActions(["runs:read", "authenticated", null].map(asking))).not.toThrow();
  expect(() => requireKnownActions([asking("runs:raed")])).toThrow(
    "operation a.b asks for an unknown action: runs:raed",
  );
});
