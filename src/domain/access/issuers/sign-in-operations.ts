import { Type } from "@sinclair/typebox";
import { platformOrgId } from "../../../gate/gate.ts";
import type { Clock } from "../../../kit/clock.ts";
import { described, shape } from "../../../kit/described.ts";
import { Fault, invalid, missing } from "../../../kit/fault.ts";
import type { Ids } from "../../../kit/ids.ts";
import { type Call, type Operation, type RestRequest, unary } from "../../../kit/operation.ts";
import type { Sessions } from "../sessions/service.ts";
import { defaultOrgId } from "../tenancy/rules.ts";
import type { Exchange } from "./exchange.ts";
import {
  callbackPath,
  flowCookieOf,
  oidcPath,
  originOf,
  proofsOf,
  readFlow,
  refusalPage,
  type SignInFlow,
} from "./flow.ts";
import { deviceCodeCharsMax } from "./limits.ts";
import { errorWord, readReturnTo } from "./rules.ts";
import type { Issuers } from "./service.ts";
import type { Ends, IssuerSignIn } from "./sign-in.ts";

const text = Type.String({ maxLength: 2_000 });
const long = Type.String({ maxLength: 16_000 });
const given = Type.String({ minLength: 1, maxLength: 2_000 });
const byId = { id: described(given, "Id of the issuer (`iss_…`).") };
const secretBytes = 32;

export interface SignInSurface {
  issuers: Pick<Issuers, "offered">;
  exchange: Exchange;
  signIn: IssuerSignIn;
  ends: Ends;
  /** Limits sign-ins that lead nowhere, by issuer and address. */
  throttle: {
    attempt(account: string, address: string): Promise<boolean>;
    succeeded(account: string, address: string): Promise<void>;
  };
  /** Whose session a token is. */
  sessionOf: Sessions["find"];
  cookies: {
    /** Of a session that has begun. */
    write: (token: string, isSecure: boolean) => string;
    /** The session of a request. */
    read: (headers: Headers) => string | undefined;
  };
  clock: Pick<Clock, "now">;
  ids: Pick<Ids, "secret">;
}

const noStore = { "Cache-Control": "no-store" };
/** What a browser says of itself besides the query. */
const sentBy = ({ headers }: RestRequest) => ({ host: headers.get("host") ?? "" });
const host = described(text, "Header `Host`: what the redirect URI names.");
/**
 * Values of `Sec-Fetch-Site` with which a browser may begin a sign-in. A page of this server sends the first
 * one; a browser whose person typed the address sends `none`.
 */
const ownSites: readonly string[] = ["same-origin", "none"];
const site = Type.Optional(
  described(text, "Header `Sec-Fetch-Site`: whose page leads there, as the browser says."),
);
const returnTo = Type.Optional(described(text, "A path of this server to go to after the sign-in."));

const redirectUri = ({ isSecure }: Pick<Call, "isSecure">, host: string, id: string): string => {
  const origin = originOf({ isSecure, host });
  if (origin === undefined) throw invalid("host", "must be a host name");
  return `${origin}${callbackPath(id, "callback")}`;
};

/** What went wrong as a page in words, and nothing of what the provider sent. */
const refused = (fault: Fault) => ({ status: 302, headers: { Location: refusalPage(fault), ...noStore } });

/** What a provider sends a browser back with. */
const answered = {
  code: Type.Optional(described(long, "What the provider gives for a token, once.")),
  state: Type.Optional(described(text, "What the browser was sent with.")),
  error: Type.Optional(described(text, "Why the provider refuses.")),
  iss: Type.Optional(described(text, "URL of the provider that answers.")),
};

interface SignInStart {
  url: string;
  cookie: string;
}

interface SignInAnswer {
  location: string;
  token?: string;
  isSecure: boolean;
}

export function issuerSignInOperations(surface: SignInSurface): Operation[] {
  const { exchange, clock, ids } = surface;

  /** The provider's page, and what the browser has to bring back from there. */
  async function begin(
    call: Pick<Call, "isSecure" | "session">,
    { id, host: named, return_to }: { id: string; host: string; return_to?: string },
    links: boolean,
  ): Promise<SignInStart> {
    const flow: SignInFlow = {
      ...{ secret: ids.secret(secretBytes), startedAt: clock.now() },
      ...{ returnTo: readReturnTo(return_to), links },
    };
    const { state, nonce, challenge } = proofsOf(flow, id, call.session);
    const uri = redirectUri(call, named, id);
    const url = await exchange.authorizationUrl(id, { redirectUri: uri, state, nonce, challenge });
    return { url, cookie: flowCookieOf(flow, call.isSecure) };
  }

  return [
    unary({
      name: "auth.issuers",
      action: null,
      scope: "none",
      reads: true,
      summary: "Issuers to sign in by: of the org that is named, else of the platform and the default org.",
      input: Type.Object({ org: Type.Optional(described(text, "Id of the org (`org_…`).")) }),
      output: Type.Object({
        issuers: Type.Array(
          Type.Object({
            ...byId,
            name: described(text, "What the button says."),
            is_platform: shape.flag("Whether it signs in users of the platform."),
          }),
          { description: "Those that are enabled, oldest first." },
        ),
      }),
      rest: "GET /api/v1/auth/issuers",
      async handle({ org }) {
        const orgs = org ? [org] : [defaultOrgId, platformOrgId];
        const found = await Promise.all(orgs.map(surface.issuers.offered));
        return {
          issuers: found
            .flat()
            .map(({ id, name, orgId }) => ({ id, name, is_platform: orgId === platformOrgId })),
        };
      },
    }),
    unary({
      name: "auth.oidc.start",
      action: null,
      scope: "none",
      reads: true,
      summary: "Leads a browser to the provider's sign-in page.",
      input: Type.Object({ ...byId, return_to: returnTo, host, site }),
      rest: {
        route: `GET ${oidcPath}/{id}/start`,
        status: 302,
        query: Type.Object({ return_to: returnTo }),
        decode: (request) => ({
          ...{ id: request.params.id, ...sentBy(request) },
          ...(request.query.has("return_to") && { return_to: request.query.get("return_to") }),
          ...(request.headers.has("sec-fetch-site") && { site: request.headers.get("sec-fetch-site") }),
        }),
        encode: ({ url, cookie }: SignInStart) => ({
          status: 302,
          headers: { Location: url, "Set-Cookie": cookie, ...noStore },
        }),
        refused,
      },
      handle(input, call) {
        // Their provider could answer at once as a person of theirs, whom this browser would then be.
        if (input.site !== undefined && !ownSites.includes(input.site))
          throw invalid("site", "another site leads here: begin at the sign-in page");
        return begin(call, input, false);
      },
    }),
    unary({
      name: "auth.oidc.link",
      action: "authenticated",
      platformAction: "authenticated",
      scope: "none",
      summary: "Begins to join a person of the provider to the user who is signed in; answers where to go.",
      input: Type.Object({ ...byId, return_to: returnTo, host }),
      output: Type.Object({ url: described(text, "The provider's page, for the same browser.") }),
      rest: {
        route: `POST ${oidcPath}/{id}/link`,
        body: Type.Object({ return_to: returnTo }),
        decode: (request) => ({
          ...((request.body ?? {}) as object),
          ...{ id: request.params.id, ...sentBy(request) },
        }),
        encode: ({ url, cookie }: SignInStart) => ({
          ...{ status: 200, body: { url }, headers: { "Set-Cookie": cookie, ...noStore } },
        }),
      },
      async handle(input, call) {
        // Another org's looks like none.
        if (!(await surface.issuers.offered(call.caller.orgId)).some(({ id }) => id === input.id))
          throw missing("issuer", input.id);
        if (call.session === undefined || call.caller.impersonates)
          throw new Fault("failed_precondition", "only a user who is signed in joins a sign-in to itself");
        return begin(call, input, true);
      },
    }),
    callback(surface),
    ...withoutBrowser(surface),
  ];
}

/** Where the provider sends the browser back to. */
function callback({ exchange, signIn, ends, throttle, sessionOf, clock, cookies }: SignInSurface): Operation {
  return unary({
    name: "auth.oidc.callback",
    action: null,
    scope: "none",
    summary:
      "Ends a sign-in at the provider: a session of 24 hours as a cookie, in the browser that began it.",
    hides: ["code", "state", "cookie", "session"],
    input: Type.Object({
      ...{ ...byId, host },
      ...answered,
      cookie: Type.Optional(described(long, "Header `Cookie`: what the browser keeps of the start.")),
      session: Type.Optional(described(long, "The session of the browser, which a person is joined to.")),
    }),
    rest: {
      route: `GET ${oidcPath}/{id}/callback`,
      status: 302,
      query: Type.Object(answered),
      decode(request) {
        const { params, query, headers } = request;
        const sent = Object.keys(answered).flatMap((name) => {
          const found = query.get(name);
          return found === null ? [] : [[name, found] as const];
        });
        const [cookie, session] = [headers.get("cookie"), cookies.read(headers)];
        return {
          ...{ id: params.id, ...sentBy(request), ...Object.fromEntries(sent) },
          ...(cookie !== null && { cookie }),
          ...(session !== undefined && { session }),
        };
      },
      encode: ({ location, token, isSecure }: SignInAnswer) => ({
        status: 302,
        headers: {
          ...{ Location: location, ...noStore },
          ...(token !== undefined && { "Set-Cookie": cookies.write(token, isSecure) }),
        },
      }),
      refused,
    },
    async handle({ id, host: named, code, state, error, iss, cookie, session }, call) {
      const flow = readFlow(cookie ?? null, clock.now());
      const proofs = flow && proofsOf(flow, id, session);
      if (!flow || !proofs || state !== proofs.state)
        throw invalid("state", "this browser did not begin the sign-in, or too long ago: begin again");
      const account = `oidc\n${id}\n${call.address}`;
      await throttle.attempt(account, call.address);
      if (!(await ends.once(`state ${state}`)))
        throw invalid("state", "the sign-in is over already: begin again");
      if (code === undefined)
        throw new Fault("permission_denied", `the provider refuses the sign-in: ${errorWord(error)}`);
      const uri = redirectUri(call, named, id);
      const { verifier, nonce } = proofs;
      const proven = await exchange.byCode(id, { code, redirectUri: uri, verifier, nonce });
      if (iss !== undefined && iss !== proven.issuer.issuer)
        throw new Fault("unauthenticated", "another provider answers than was asked");
      const location = readReturnTo(flow.returnTo);
      const { isSecure } = call;
      if (flow.links) {
        const known = session === undefined ? undefined : await sessionOf(session);
        if (!known) throw new Fault("unauthenticated", "Authentication required");
        // From here on the call is theirs, and the audit names them.
        call.caller = known.caller;
        await signIn.link(proven, known.caller);
        return { location, isSecure };
      }
      const { token, caller } = await signIn.begin(proven, call);
      call.caller = caller;
      await throttle.succeeded(account, call.address);
      return { location, token, isSecure };
    },
  });
}

/** The command line signs in by a code that a person confirms elsewhere; providers end sessions. */
function withoutBrowser({ exchange, signIn, ends, throttle }: SignInSurface): Operation[] {
  return [
    unary({
      name: "auth.oidc.device",
      action: null,
      scope: "none",
      summary: "Begins a sign-in without a browser (RFC 8628): a code to be confirmed at the provider.",
      input: Type.Object(byId),
      output: Type.Object({
        device_code: described(text, "What is asked with for the session; whoever has it gets that."),
        user_code: described(text, "What the person types, or compares."),
        verification_uri: described(text, "Where the person confirms."),
        verification_uri_complete: Type.Optional(described(text, "The same, with the code in it.")),
        expires_in: shape.number("Seconds until the code is over."),
        interval: shape.number("Seconds to wait between two questions."),
      }),
      rest: {
        route: `POST ${oidcPath}/{id}/device`,
        encode: (body: object) => ({ status: 200, body, headers: noStore }),
      },
      async handle({ id }, { address }) {
        await throttle.attempt(`device\n${id}\n${address}`, address);
        return exchange.beginDevice(id);
      },
    }),
    unary({
      name: "auth.oidc.deviceToken",
      action: null,
      scope: "none",
      hides: ["device_code"],
      summary: "The session of a device code; 409 `AUTHORIZATION_PENDING` until the person has confirmed it.",
      input: Type.Object({
        ...byId,
        device_code: described(
          Type.String({ minLength: 1, maxLength: deviceCodeCharsMax }),
          "As the device's start answered it.",
        ),
      }),
      output: Type.Object({
        token: shape.text("Session of 24 hours; goes where an API key goes."),
      }),
      rest: {
        route: `POST ${oidcPath}/{id}/device-token`,
        encode: ({ token }: { token: string }) => ({ status: 200, body: { token }, headers: noStore }),
      },
      async handle({ id, device_code }, call) {
        const account = `device token\n${id}\n${call.address}`;
        await throttle.attempt(account, call.address);
        const proven = await exchange.byDevice(id, device_code);
        if (!(await ends.once(`device ${id} ${device_code}`)))
          throw new Fault("unauthenticated", "the code has signed in already");
        const { token, caller } = await signIn.begin(proven, call);
        call.caller = caller;
        await throttle.succeeded(account, call.address);
        return { token };
      },
    }),
    unary({
      name: "auth.oidc.logout",
      action: null,
      scope: "none",
      hides: ["logout_token"],
      summary: "Back-channel logout: the provider ends sessions that came from there.",
      input: Type.Object({ ...byId, logout_token: described(long, "Signed by the provider.") }),
      rest: {
        route: `POST ${oidcPath}/{id}/logout`,
        raw: true,
        status: 200,
        body: Type.Object({ logout_token: described(long, "Signed by the provider; sent as a form.") }),
        decode({ params, body }) {
          const form = new URLSearchParams(new TextDecoder().decode(body as Uint8Array | undefined));
          const token = form.get("logout_token");
          return { id: params.id, ...(token !== null && { logout_token: token }) };
        },
        encode: () => ({ status: 200, body: {}, headers: noStore }),
      },
      handle: ({ id, logout_token }) => ends.byProvider(id, logout_token),
    }),
  ];
}
