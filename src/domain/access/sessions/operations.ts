import { Type } from "@sinclair/typebox";
import { described, shape } from "../../../kit/described.ts";
import { Fault } from "../../../kit/fault.ts";
import { type Call, type Operation, unary } from "../../../kit/operation.ts";
import { sessionMs } from "./register.ts";
import type { KnownSession, PlatformLogin, Sessions } from "./service.ts";

const text = Type.String({ maxLength: 2_000 });
const given = Type.String({ minLength: 1, maxLength: 2_000 });

export const sessionCookie = "svc_dashboard_token";

/**
 * HttpOnly: no script reads it; Lax: no foreign page's form sends it; Secure where the browser came over TLS.
 */
export const cookieOf = (token: string, isSecure: boolean): string =>
  `${sessionCookie}=${token}; Path=/; HttpOnly; SameSite=Lax; Max-Age=${sessionMs / 1_000}${isSecure ? "; Secure" : ""}`;

/** The browser forgets it. */
const noCookie = (isSecure: boolean): string =>
  `${sessionCookie}=; Path=/; HttpOnly; SameSite=Lax; Max-Age=0${isSecure ? "; Secure" : ""}`;

const sessionToken = Type.Object({
  token: shape.text("Session of 24 hours; goes where an API key goes."),
});

const encodeSession = ({ token, isSecure }: { token: string; isSecure: boolean }) => ({
  status: 200,
  body: { token },
  headers: { "Set-Cookie": cookieOf(token, isSecure), "Cache-Control": "no-store" },
});

/** The actions that the caller's roles grant where it acts, whatever deny policies keep from it. */
export type GrantedActions = (call: Call) => Promise<readonly string[]>;

/** Where a browser signs out of the issuer's provider too; undefined for nowhere. */
export type SignOutAt = (
  issuerId: string,
  here: { isSecure: boolean; host: string },
) => Promise<string | undefined>;

export const sessionsOperations = (
  sessions: Sessions,
  granted: GrantedActions,
  signOutAt: SignOutAt,
): Operation[] => [
  ...selfOperations(granted),
  ...loginOperations(sessions),
  logoutOperation(sessions, signOutAt),
  desktopOperation(sessions),
];

export const SelfShape = Type.Object({
  id: described(text, "Id of the key or user."),
  kind: described(text, "key, user, platform or dev."),
  email: Type.Optional(text),
  org_id: described(text, "Organization that the caller acts in."),
  environment_id: described(text, "Environment that the request acts in; empty outside any."),
  roles: Type.Array(text, { description: "Roles of the caller, by name or id." }),
  actions: Type.Array(text, {
    description: "Actions that the roles grant, such as `runs:read`; deny policies may keep single things.",
  }),
  impersonates: shape.flag("Whether a platform credential acts in a tenant's org."),
});

const selfOperations = (granted: GrantedActions): Operation[] => [
  unary({
    name: "auth.session",
    action: "authenticated",
    platformAction: "authenticated",
    scope: "none",
    reads: true,
    summary: "Who the caller is, where it acts, and which actions its roles grant there.",
    input: Type.Object({}),
    output: SelfShape,
    rest: "GET /api/v1/auth/session",
    async handle(_input, call) {
      const { id, kind, email, orgId, roles, impersonates = false } = call.caller;
      return {
        ...{ id, kind, ...(email !== undefined && { email }), org_id: orgId, impersonates },
        ...{ environment_id: call.environmentId, roles: [...roles], actions: [...(await granted(call))] },
      };
    },
  }),
];

const loginOperations = (sessions: Sessions): Operation[] => [
  unary({
    name: "auth.login",
    action: null,
    scope: "none",
    summary: "A dashboard session of 24 hours, as a token and as a cookie.",
    input: Type.Object({ email: text, password: text }),
    output: sessionToken,
    rest: { route: "POST /api/v1/auth/login", encode: encodeSession },
    async handle({ email, password }, call) {
      const { token } = await sessions.login(email, password, call);
      return { token, isSecure: call.isSecure };
    },
  }),
  unary({
    name: "auth.loginByLink",
    action: null,
    scope: "none",
    summary:
      "A session by the link that the first start prints: once, within ten minutes, from its own machine.",
    input: Type.Object({ link: described(given, "Secret of the link, which stands behind its `#`.") }),
    output: sessionToken,
    rest: { route: "POST /api/v1/auth/login-by-link", encode: encodeSession },
    async handle({ link }, call) {
      const { token } = await sessions.loginByLink(link, call);
      return { token, isSecure: call.isSecure };
    },
  }),
  unary({
    name: "platform.auth.login",
    action: null,
    scope: "none",
    summary: "A session of a platform user of 24 hours, as a token and as a cookie; 403 for an inactive one.",
    input: Type.Object({ email: given, password: given }),
    output: Type.Object({
      token: shape.text("Session of 24 hours; goes where an API key goes."),
      user: Type.Object(
        {
          id: described(text, "Id of the user (`puser_…`)."),
          email: text,
          name: described(text, "Name of the user, for people, such as `Ada`."),
          roles: Type.Array(text, { description: "Names of the user's roles." }),
        },
        { description: "Who logged in." },
      ),
    }),
    rest: {
      route: "POST /api/v1/platform/auth/login",
      encode: ({ isSecure, ...body }: PlatformLogin & { isSecure: boolean }) => ({
        status: 200,
        body,
        headers: { "Set-Cookie": cookieOf(body.token, isSecure), "Cache-Control": "no-store" },
      }),
    },
    async handle({ email, password }, call) {
      return {
        ...(await sessions.loginToPlatform(email, password, call)),
        isSecure: call.isSecure,
      };
    },
  }),
  unary({
    name: "auth.validate",
    action: null,
    scope: "none",
    reads: true,
    summary: "Whether the session of the cookie or of the Authorization header is valid.",
    input: Type.Object({
      token: Type.Optional(described(text, "A session, where neither a cookie nor a header has it.")),
    }),
    output: Type.Object({
      valid: shape.flag("Always true: a session that is not valid is answered by 401."),
      email: Type.String(),
    }),
    rest: {
      route: "GET /api/v1/auth/validate",
      decode: ({ headers }) => {
        const token = tokenOf(headers);
        return token === undefined ? {} : { token };
      },
    },
    async handle({ token }) {
      const session: KnownSession | undefined = token === undefined ? undefined : await sessions.find(token);
      if (!session) throw new Fault("unauthenticated", "Authentication required");
      return { valid: true, email: session.caller.email ?? "" };
    },
  }),
];

/** The session is over whatever the provider answers. */
const logoutOperation = (sessions: Sessions, signOutAt: SignOutAt): Operation =>
  unary({
    name: "auth.logout",
    action: "authenticated",
    platformAction: "authenticated",
    scope: "none",
    summary:
      "Ends the session that the request comes with on every node, and takes the cookie back; 200 with a page of the provider, where the issuer wants a browser to go there.",
    input: Type.Object({
      host: described(text, "Header `Host`: where the provider sends the browser back."),
    }),
    output: Type.Object({
      url: shape.text("The provider's sign-out, for the same browser."),
    }),
    rest: {
      route: "POST /api/v1/auth/logout",
      status: 200,
      also: [204],
      body: Type.Object({}),
      // Ignores the body, whatever it contains; a host that is none ends the session all the same.
      decode: ({ headers }) => ({ host: (headers.get("host") ?? "").slice(0, 300) }),
      encode: ({ isSecure, url }: { isSecure: boolean; url: string | undefined }) => ({
        status: url === undefined ? 204 : 200,
        ...(url !== undefined && { body: { url } }),
        headers: { "Set-Cookie": noCookie(isSecure), "Cache-Control": "no-store" },
      }),
    },
    async handle({ host }, { session, isSecure }) {
      if (session === undefined) return { isSecure, url: undefined };
      const issuerId = await sessions.issuerOf(session);
      await sessions.logout(session);
      return { isSecure, url: issuerId && (await signOutAt(issuerId, { isSecure, host })) };
    },
  });

const desktopOperation = (sessions: Sessions): Operation =>
  unary({
    name: "auth.desktopSession",
    action: "authenticated",
    scope: "none",
    summary: "A dashboard session with the organization, roles and environment of the API key that asks.",
    input: Type.Object({}),
    output: sessionToken,
    rest: {
      route: "POST /api/v1/auth/desktop-session",
      encode: ({ token }: { token: string }) => ({
        status: 200,
        body: { token },
        headers: { "Cache-Control": "no-store" },
      }),
    },
    handle: (_input, call) => sessions.desktop(call.caller, call),
  });

/** The session's token of a request: of the Authorization header, else of the cookie. */
export function tokenOf(headers: Headers): string | undefined {
  const [, bearer] = /^bearer +(\S+) *$/i.exec(headers.get("authorization") ?? "") ?? [];
  return bearer ?? cookieValue(headers.get("cookie"));
}

export function cookieValue(header: string | null): string | undefined {
  if (header === null || !header.includes(sessionCookie)) return undefined;
  for (const part of header.split(";")) {
    const [name, value] = part.trim().split("=", 2);
    if (name === sessionCookie && value) return value;
  }
  return undefined;
}
