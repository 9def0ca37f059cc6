import { Type } from "@sinclair/typebox";
import { recordJson } from "../../../kit/cases.ts";
import { rfc3339 } from "../../../kit/clock.ts";
import { described, maybe, shape } from "../../../kit/described.ts";
import { listedById, type Operation, unary } from "../../../kit/operation.ts";
import type { ScopedRoutes } from "../roles/rules.ts";
import { callbackPath } from "./flow.ts";
import type { Identities, JoinedIdentity } from "./identities.ts";
import { mappingMax } from "./limits.ts";
import type { Issuers, ShownIssuer } from "./service.ts";

const text = Type.String({ maxLength: 2_000 });
const given = Type.String({ minLength: 1, maxLength: 2_000 });
const instant = Type.String({ format: "date-time" });
const byId = { id: described(given, "Id of the issuer (`iss_…`).") };
const value = described(given, "A value of the claim; `*` means everyone who signs in.");

const changes = {
  client_secret: Type.Optional(
    described(text, "Secret of that client, sealed and never answered; empty for a public client."),
  ),
  scopes: Type.Optional(described(text, "What is asked for, apart by spaces: `openid email profile`.")),
  roles_claim: Type.Optional(
    described(text, "The claim with groups or roles: `groups`, or a path such as `realm_access.roles`."),
  ),
  is_enabled: maybe.flag("Whether people may sign in by it."),
  ends_at_provider: maybe.flag("Whether who signs out here is led to the provider's sign-out."),
  roles: Type.Optional(
    Type.Array(Type.Object({ value, role: described(given, "Name or id of the role.") }), {
      maxItems: mappingMax,
      description: "Which roles people get at each sign-in; replaced as a whole.",
    }),
  ),
};

export const IssuerShape = Type.Object({
  ...byId,
  org_id: text,
  name: described(text, "What the button of the sign-in page says."),
  issuer: described(text, "URL of the provider, as its tokens spell it."),
  client_id: described(text, "Our client there."),
  has_secret: shape.flag("Whether that client has a secret."),
  scopes: described(text, "What is asked for, apart by spaces."),
  roles_claim: described(text, "The claim with groups or roles."),
  is_enabled: shape.flag("Whether people may sign in by it."),
  ends_at_provider: shape.flag("Whether who signs out here is led to the provider's sign-out."),
  roles: Type.Array(
    Type.Object({
      value,
      role_id: described(text, "Id of the role (`role_…`)."),
      role: Type.Optional(described(text, "Name of the role; absent when the role is gone.")),
    }),
    { description: "Which roles people get at each sign-in." },
  ),
  callback_path: described(
    text,
    "What to register at the provider as redirect URI, behind this server's URL.",
  ),
  logout_path: described(text, "The same as URI of back-channel logouts."),
  created_at: instant,
  updated_at: instant,
});

const issuerJson = (issuer: ShownIssuer) => ({
  ...recordJson(issuer, "id orgId name issuer clientId hasSecret scopes rolesClaim isEnabled endsAtProvider"),
  roles: issuer.roles.map(({ value: of, roleId, name }) => ({
    ...{ value: of, role_id: roleId },
    ...(name !== undefined && { role: name }),
  })),
  callback_path: callbackPath(issuer.id, "callback"),
  logout_path: callbackPath(issuer.id, "logout"),
  ...recordJson(issuer, "createdAt updatedAt"),
});

export const SignInShape = Type.Object({
  passwords: shape.flag("Whether passwords sign in, besides issuers."),
});

interface SentChange {
  name?: string;
  client_id?: string;
  client_secret?: string;
  scopes?: string;
  roles_claim?: string;
  is_enabled?: boolean;
  ends_at_provider?: boolean;
  roles?: { value: string; role: string }[];
}

const changeOf = ({
  name,
  client_id,
  client_secret,
  scopes,
  roles_claim,
  is_enabled,
  ends_at_provider,
  roles,
}: SentChange) => ({
  ...{ name, clientId: client_id, clientSecret: client_secret, scopes },
  ...{ rolesClaim: roles_claim, isEnabled: is_enabled, endsAtProvider: ends_at_provider, roles },
});

/** Issuers of an org, or of the platform, for those who manage its users. */
export function issuersOperations(issuers: Issuers, scoped: ScopedRoutes): Operation[] {
  const { name, path, read, manage, scopeOf } = scoped;
  const signIn = { name: name.replace("issuers", "signIn"), path: path.replace("issuers", "sign-in") };
  const reads = { action: read, scope: "none" as const, reads: true };
  const changing = { action: manage, scope: "none" as const };
  return [
    unary({
      ...reads,
      name: `${name}.list`,
      summary: "OpenID providers by which people sign in, with the mapping of their roles.",
      input: Type.Object({}),
      output: Type.Array(IssuerShape),
      rest: `GET ${path}`,
      lists: listedById(),
      handle: async (_input, call) => (await issuers.list(scopeOf(call))).map(issuerJson),
    }),
    unary({
      ...reads,
      name: `${name}.get`,
      summary: "One issuer.",
      input: Type.Object(byId),
      output: IssuerShape,
      rest: { route: `GET ${path}/{id}`, json: issuerJson },
      handle: ({ id }, call) => issuers.get(scopeOf(call), id),
    }),
    unary({
      ...changing,
      name: `${name}.create`,
      summary: "An OpenID provider by which people sign in; at their first sign-in they become users.",
      input: Type.Object({
        name: described(given, "What the button of the sign-in page says."),
        issuer: described(given, "URL of the provider, as its tokens spell it: `https://login.example.com`."),
        client_id: described(given, "Id of our client at the provider."),
        ...changes,
      }),
      output: IssuerShape,
      rest: { route: `POST ${path}`, status: 201, json: issuerJson },
      handle: ({ issuer, name: called, client_id, ...rest }, call) =>
        issuers.create(scopeOf(call), { ...changeOf(rest), name: called, clientId: client_id, issuer }),
    }),
    unary({
      ...changing,
      name: `${name}.update`,
      summary: "Changes an issuer, all but its URL.",
      input: Type.Object({
        ...byId,
        name: Type.Optional(described(given, "What the button of the sign-in page says.")),
        client_id: Type.Optional(described(given, "Id of our client at the provider.")),
        ...changes,
      }),
      output: IssuerShape,
      rest: { route: `PATCH ${path}/{id}`, json: issuerJson },
      handle: ({ id, ...change }, call) => issuers.update(scopeOf(call), id, changeOf(change)),
    }),
    unary({
      ...changing,
      name: `${name}.delete`,
      summary: "Deletes an issuer; sessions and users that came from it stay.",
      input: Type.Object(byId),
      rest: `DELETE ${path}/{id}`,
      handle: ({ id }, call) => issuers.remove(scopeOf(call), id),
    }),
    unary({
      ...reads,
      name: `${signIn.name}.get`,
      summary: "How people may sign in.",
      input: Type.Object({}),
      output: SignInShape,
      rest: `GET ${signIn.path}`,
      handle: async (_input, call) => ({ passwords: await issuers.arePasswordsOn(scopeOf(call)) }),
    }),
    unary({
      ...changing,
      name: `${signIn.name}.update`,
      summary: "Switches passwords off or on; off needs an issuer that is enabled.",
      input: SignInShape,
      output: SignInShape,
      rest: `PATCH ${signIn.path}`,
      async handle({ passwords }, call) {
        await issuers.setPasswords(scopeOf(call), passwords);
        return { passwords };
      },
    }),
  ];
}

const byUser = { id: Type.String({ minLength: 1, description: "Id of the user (`usr_…`, `puser_…`)." }) };
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
      input: Type.Object(byUser),
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
      input: Type.Object({ ...byUser, identity: identityId }),
      rest: `DELETE ${route}/{identity}`,
      handle: ({ id, identity }, call) => identities.unlink(scopeOf(call), id, identity, call.caller),
    }),
  ];
}
