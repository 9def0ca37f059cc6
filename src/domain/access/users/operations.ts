import { Type } from "@sinclair/typebox";
import { recordJson } from "../../../kit/cases.ts";
import { described } from "../../../kit/described.ts";
import type { Call, Operation } from "../../../kit/operation.ts";
import { listedById, unary } from "../../../kit/operation.ts";
import type { UserRow, Users } from "./service.ts";

const text = Type.String({ maxLength: 2_000 });
const instant = Type.String({ format: "date-time" });
const byId = { id: Type.String({ minLength: 1, description: "Id of the user (`usr_…`)." }) };
const roleNames = Type.Array(text, { maxItems: 50 });

const UserShape = Type.Object({
  id: described(text, "Id of the user (`usr_…`)."),
  org_id: text,
  email: text,
  name: described(text, "Name of the user, for people, such as `Ada`."),
  roles: Type.Array(text, { description: "Names of the user's roles." }),
  created_at: instant,
  updated_at: instant,
  last_login_at: Type.Optional(instant),
});

export const userJson = (user: UserRow) =>
  recordJson(user, "id orgId email name roles createdAt updatedAt lastLoginAt");

export interface UsersSurface {
  /** Throws unless the caller may see this other user. */
  requireRead: (call: Call, id: string) => Promise<void>;
  /** Limits guesses at a password. */
  throttle: {
    /** Rejects after too many attempts. */
    attempt(account: string, address: string): Promise<boolean>;
    succeeded(account: string, address: string): Promise<void>;
  };
}

const manage = { action: "users:manage", scope: "none" } as const;

export const usersOperations = (users: Users, { requireRead, throttle }: UsersSurface): Operation[] => [
  unary({
    name: "users.create",
    ...manage,
    summary: "A user of the org, who logs in with a password.",
    input: Type.Object({
      email: text,
      password: text,
      name: Type.Optional(described(text, "Name of the user, for people: at most 200 characters.")),
      roles: Type.Optional(described(roleNames, "Names or ids of the user's roles; none when left out.")),
    }),
    output: UserShape,
    rest: { route: "POST /api/v1/users", status: 201, json: userJson },
    handle: ({ email, password, name = "", roles = [] }, call) =>
      users.create(call.caller.orgId, { email, password, name, roles }),
  }),
  unary({
    name: "users.list",
    action: "users:read",
    scope: "none",
    reads: true,
    summary: "Users of the org.",
    input: Type.Object({}),
    output: Type.Array(UserShape),
    rest: "GET /api/v1/users",
    lists: listedById(),
    handle: async (_input, call) => (await users.list(call.caller.orgId)).map(userJson),
  }),
  unary({
    name: "users.get",
    // Everyone may see themselves.
    action: "authenticated",
    scope: "none",
    reads: true,
    summary: "One user; admins see everyone of the org, others themselves.",
    alsoAsks: ["users:read"],
    input: Type.Object(byId),
    output: UserShape,
    rest: { route: "GET /api/v1/users/{id}", json: userJson },
    async handle({ id }, call) {
      if (call.caller.id !== id) await requireRead(call, id);
      return users.get(call.caller.orgId, id);
    },
  }),
  unary({
    name: "users.update",
    ...manage,
    summary: "Changes name, email or roles of a user.",
    input: Type.Object({
      ...byId,
      name: Type.Optional(described(text, "Name of the user, for people: at most 200 characters.")),
      email: Type.Optional(text),
      roles: Type.Optional(described(roleNames, "Names or ids of the user's roles.")),
    }),
    output: UserShape,
    rest: { route: "PATCH /api/v1/users/{id}", json: userJson },
    handle: ({ id, ...change }, call) =>
      users.update(
        call.caller.orgId,
        id,
        Object.fromEntries(Object.entries(change).filter(([, value]) => value !== undefined)),
      ),
  }),
  unary({
    name: "users.delete",
    ...manage,
    summary: "Deletes another user; their sessions end.",
    input: Type.Object(byId),
    rest: "DELETE /api/v1/users/{id}",
    handle: ({ id }, call) => users.delete(call.caller, id),
  }),
  unary({
    name: "users.changePassword",
    action: "authenticated",
    scope: "none",
    summary: "Changes the caller's own password; every session of theirs ends.",
    input: Type.Object({ ...byId, current_password: text, new_password: text }),
    rest: "PATCH /api/v1/users/{id}/password",
    async handle({ id, current_password, new_password }, { caller, address }) {
      const account = `change\n${caller.id}`;
      // Counted like a login: a stolen session must not be a way to guess the password.
      await throttle.attempt(account, address);
      await users.changePassword(caller, id, current_password, new_password);
      await throttle.succeeded(account, address);
    },
  }),
];
