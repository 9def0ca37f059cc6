import { Type } from "@sinclair/typebox";
import { rfc3339 } from "../../../kit/clock.ts";
import { described, shape } from "../../../kit/described.ts";
import { type Operation, unary } from "../../../kit/operation.ts";
import type { ScopedRoutes } from "../roles/role.ts";
import type { Identities, JoinedIdentity } from "./identities.ts";

const text = Type.String({ maxLength: 2_000 });
const byId = { id: Type.String({ minLength: 1, description: "Id of the user (`usr_…`, `puser_…`)." }) };
const identityId = Type.String({ minLength: 1, description: "Id of the identity (`idn_…`)." });

export const IdentityShape = Type.Object({
  id: identityId,
  issuer: described(text, "URL of the provider."),
  issuer_id: Type.Optional(described(text, "The issuer (`iss_…`); absent where it was deleted.")),
  issuer_name: Type.Optional(described(text, "What its button says.")),
  subject: described(text, "Whom the provider means, as its tokens have it in `sub`."),
  joined_at: shape.time("When it was joined to the user."),
});

const identityJson = ({ id, issuer, of, subject, joinedAt }: JoinedIdentity) => ({
  ...{ id, issuer, subject, joined_at: rfc3339(joinedAt) },
  ...(of && { issuer_id: of.id, issuer_name: of.name }),
});

/** As whom a user of an org, or of the platform, signs in at providers. */
export function identitiesOperations(
  identities: Identities,
  { name, path, read, manage, scopeOf }: ScopedRoutes,
): Operation[] {
  const ofUsers = name.replace("issuers", "users");
  const route = `${path.replace("issuers", "users")}/{id}/identities`;
  return [
    unary({
      ...{ name: `${ofUsers}.identities`, action: read, scope: "none", reads: true },
      summary: "The people of providers as which a user may sign in, oldest first.",
      input: Type.Object(byId),
      output: Type.Object({
        identities: Type.Array(IdentityShape, { description: "Those that were joined to the user." }),
      }),
      rest: `GET ${route}`,
      handle: async ({ id }, call) => ({
        identities: (await identities.list(scopeOf(call), id)).map(identityJson),
      }),
    }),
    unary({
      ...{ name: `${ofUsers}.unlink`, action: manage, scope: "none", special: { isAudited: true } },
      summary:
        "Parts a person of a provider from a user, whose sessions from there end; not the last way in.",
      input: Type.Object({ ...byId, identity: identityId }),
      rest: `DELETE ${route}/{identity}`,
      handle: ({ id, identity }, call) => identities.unlink(scopeOf(call), id, identity, call.caller),
    }),
  ];
}
