import { Type } from "@sinclair/typebox";
import { actsForPlatform } from "../../../kit/caller.ts";
import { stated } from "../../../kit/cases.ts";
import { rfc3339 } from "../../../kit/clock.ts";
import { described, maybe } from "../../../kit/described.ts";
import type { Call, Operation } from "../../../kit/operation.ts";
import { listedById, unary } from "../../../kit/operation.ts";
import type { RoleScope } from "../roles/service.ts";
import type { KeyManagement, ListedKey } from "./manage.ts";

const text = Type.String({ maxLength: 2_000 });
const instant = Type.String({ format: "date-time" });
const byId = { id: Type.String({ minLength: 1, description: "Id of the key (`ak_…`)." }) };
const roleIds = Type.Array(text, { maxItems: 100 });

export const KeyShape = Type.Object({
  id: described(text, "Id of the key (`ak_…`)."),
  name: described(text, "Name of the key, for people, such as `ci`."),
  key_prefix: text,
  environment_id: Type.Optional(text),
  role_ids: Type.Array(text),
  created_at: instant,
  /** The documented name; clients read `expires_at`. */
  expires: Type.Optional(described(instant, "The same as `expires_at`.")),
  expires_at: Type.Optional(instant),
  last_used_at: Type.Optional(instant),
});
const NewKeyShape = Type.Composite([
  KeyShape,
  Type.Object({
    key: described(text, "Text of the key, such as `ifkey_of-an-example`; no later answer has it."),
  }),
]);

const keyJson = (row: ListedKey) => ({
  id: row.id,
  name: row.name,
  key_prefix: row.prefix,
  ...(row.environmentId !== null && { environment_id: row.environmentId }),
  role_ids: row.roleIds,
  created_at: rfc3339(row.createdAt),
  ...(row.expiresAt !== null && { expires: rfc3339(row.expiresAt), expires_at: rfc3339(row.expiresAt) }),
  ...(row.lastUsedAt !== null && { last_used_at: rfc3339(row.lastUsedAt) }),
});

type Made = { key: string; row: ListedKey };
const newKeyJson = ({ key, row }: Made) => ({ ...keyJson(row), key });

export interface KeysSurface {
  manage: KeyManagement;
  /** The scope whose keys a call manages; throws unless the caller may manage the platform's. */
  scopeOf: (call: Call, platform: boolean) => RoleScope;
}

const read = { action: "apikeys:read", platformAction: "platform:keys:read", scope: "none" as const };
const change = { action: "apikeys:manage", platformAction: "platform:keys:manage", scope: "none" as const };

export const keysOperations = ({ manage, scopeOf }: KeysSurface): Operation[] => {
  /** A route that names a key by id alone means the platform's keys when a platform credential calls. */
  const own = (call: Call) => scopeOf(call, actsForPlatform(call.caller));
  return [
    unary({
      ...change,
      name: "keys.create",
      summary: "A key; its text is answered this once and kept as a hash only.",
      input: Type.Object({
        name: described(text, "Name of the key, for people, such as `ci`."),
        env_id: Type.Optional(text),
        role_ids: Type.Optional(
          described(
            roleIds,
            "Ids of roles (`role_…`), or their names; the caller's own when left out: an admin makes a key of an admin.",
          ),
        ),
        expires_in: Type.Optional(
          described(text, "How long it is good, such as `720h` or `30d`; without end when left out."),
        ),
        platform: maybe.flag("Whether it is a key of the platform."),
      }),
      environmentOf: ({ env_id }: { env_id?: string }) => env_id,
      output: NewKeyShape,
      rest: { route: "POST /api/v1/apikeys", status: 201, json: newKeyJson },
      handle: ({ name, env_id, role_ids, expires_in, platform = false }, call) =>
        manage.create(
          scopeOf(call, platform),
          {
            name,
            ...stated({ environmentId: env_id, roleIds: role_ids, expiresIn: expires_in }),
          },
          call,
        ),
    }),
    unary({
      ...read,
      name: "keys.list",
      reads: true,
      summary:
        "Keys of the org, or with `platform=true` of the platform; expired ones too, never their texts.",
      input: Type.Object({
        platform: maybe.flag("Whether the platform's keys are listed."),
      }),
      output: Type.Array(KeyShape),
      rest: "GET /api/v1/apikeys",
      lists: listedById(),
      handle: async ({ platform = false }, call) => (await manage.list(scopeOf(call, platform))).map(keyJson),
    }),
    unary({
      ...read,
      name: "keys.get",
      reads: true,
      summary: "One key, without its text.",
      input: Type.Object(byId),
      output: KeyShape,
      rest: { route: "GET /api/v1/apikeys/{id}", json: keyJson },
      handle: ({ id }, call) => manage.get(own(call), id),
    }),
    unary({
      ...change,
      name: "keys.delete",
      summary: "Revokes a key: refused by every node once this is answered.",
      input: Type.Object(byId),
      rest: "DELETE /api/v1/apikeys/{id}",
      handle: ({ id }, call) => manage.remove(own(call), id),
    }),
    unary({
      ...change,
      name: "keys.rotate",
      summary: "A new text for the same key; the old one is refused. An expired key cannot be rotated.",
      input: Type.Object(byId),
      output: NewKeyShape,
      rest: {
        route: "POST /api/v1/apikeys/{id}/rotate",
        encode: (made: Made) => ({
          status: 200,
          body: newKeyJson(made),
          headers: { "Cache-Control": "no-store" },
        }),
      },
      handle: ({ id }, call) => manage.rotate(own(call), id),
    }),
    unary({
      ...change,
      name: "keys.setRoles",
      summary: "Replaces the roles of a key.",
      input: Type.Object({ ...byId, role_ids: roleIds }),
      output: KeyShape,
      rest: { route: "PUT /api/v1/apikeys/{id}/roles", json: keyJson },
      handle: ({ id, role_ids }, call) => manage.setRoles(own(call), id, role_ids),
    }),
  ];
};
