import { hash, timingSafeEqual } from "node:crypto";
import type { Caller } from "../../../kit/caller.ts";
import type { Clock, Instant } from "../../../kit/clock.ts";
import { Fault } from "../../../kit/fault.ts";
import type { Ids } from "../../../kit/ids.ts";
import { keyLeaseMs } from "../../../kit/limits.ts";
import { hashPassword, verifyPassword } from "../../../kit/password.ts";
import { type TtlCache, ttlCache } from "../../../kit/ttl-cache.ts";
import type { Session, Store } from "../../../store/store.ts";
import type { Keys } from "../keys/service.ts";
import type { Users } from "../users/service.ts";
import { accountOf, type KnownSession, type PlatformAccounts } from "./accounts.ts";
import type { Issued, LoginOrigin, SessionRegister } from "./register.ts";
import type { Throttle } from "./throttle.ts";
import type { Tokens } from "./tokens.ts";

/** How long a sign-in link of the first start works. */
export const signInLinkMs = 10 * 60_000;
const tokenBytes = 32;

/** Sign-in links of this process: each signs one user in once. */
type SignInLinks = ReturnType<typeof openSignInLinks>;

const digest = (token: string): Buffer => hash("sha256", token, "buffer");

export function openSignInLinks({ clock, ids }: { clock: Pick<Clock, "now">; ids: Pick<Ids, "secret"> }) {
  let link: { digest: Buffer; userId: string; until: Instant } | undefined;
  return {
    /** The token of a new link, which is kept as its hash only. */
    issue(userId: string): string {
      const token = ids.secret(tokenBytes);
      link = { digest: digest(token), userId, until: clock.now() + signInLinkMs };
      return token;
    },
    /** The user, once; undefined for a token that is unknown, used or too old. */
    take(token: string): string | undefined {
      const found = link;
      if (!found || !timingSafeEqual(found.digest, digest(token))) return undefined;
      link = undefined;
      return clock.now() < found.until ? found.userId : undefined;
    },
  };
}

/** `127.0.0.0/8` and `::1`, as sockets name them. */
export const isLoopbackAddress = (address: string): boolean =>
  address === "::1" || /^(::ffff:)?127\.\d+\.\d+\.\d+$/i.test(address);

export type { KnownSession, PlatformAccount, PlatformAccounts } from "./accounts.ts";

export interface PlatformLogin {
  token: string;
  user: { id: string; email: string; name: string; roles: string[] };
}

export type Sessions = ReturnType<typeof openSessions>;

export interface SessionsDeps {
  store: Pick<Store, "write">;
  clock: Clock;
  register: SessionRegister;
  tokens: Tokens;
  throttle: Throttle;
  users: Users;
  keys: Pick<Keys, "byId" | "hold">;
  platformUsers: PlatformAccounts;
  links: Pick<SignInLinks, "take">;
  passwords: {
    /** Whether users of the org sign in by an issuer alone. */
    areOff: (session: Session, orgId: string) => Promise<boolean>;
    /** Audits that a platform user whose password always works has used it, in the login's transaction. */
    recordBreakGlass: (session: Session, userId: string, address: string) => Promise<void>;
  };
  /** Called after the commit of a session of the org. */
  onBegun: (orgId: string) => void;
}

const sessionsRemembered = 10_000;
export const badLogin = (): Fault => new Fault("unauthenticated", "Invalid email or password");

/** Said to those alone who know the password. */
const passwordsOff = (): Fault =>
  new Fault("permission_denied", "passwords are off: sign in by an issuer", { code: "PASSWORDS_OFF" });

/** The token of a session that is committed. */
function issue({ onBegun, tokens }: SessionsDeps, made: Issued) {
  onBegun(made.orgId);
  return tokens.sign(made);
}

async function read(deps: SessionsDeps, token: string): Promise<KnownSession | undefined> {
  const { clock, register, tokens } = deps;
  const claims = await tokens.read(token);
  if (!claims) return undefined;
  const [row, account] = await Promise.all([register.find(claims.sid), accountOf(deps, claims)]);
  if (!row || row.kind !== claims.kind || row.subjectId !== claims.subject) return undefined;
  if (!account || row.createdAt < account.tokensAfter) return undefined;
  const { caller, environmentId, expiresAt = row.expiresAt } = account;
  const ends = Math.min(expiresAt, row.expiresAt);
  if (ends <= clock.now()) return undefined;
  register.used(row);
  return { id: row.id, caller, environmentId, expiresAt: ends };
}

/** For a caller who came with an API key. */
const desktopOf = (deps: SessionsDeps) => async (caller: Caller, from: LoginOrigin) => {
  const { store, register, keys } = deps;
  if (caller.kind !== "key") throw new Fault("unauthenticated", "an API key is required");
  const made = await store.write(async (session) => {
    const key = await keys.hold(session, caller.id, caller.orgId);
    // The key was rotated after the request was authenticated: its text is no longer valid.
    if (!key || key.tokensAfter !== caller.tokensAfter) throw new Fault("unauthenticated", "Invalid API key");
    const { orgId, tokensAfter } = key;
    const wanted = { kind: "desktop", subjectId: caller.id, orgId, after: tokensAfter, from } as const;
    return register.add(session, wanted);
  });
  return issue(deps, made);
};

/** The issuer that the token's session came from; undefined for a password, a link or a key. */
const issuerOf =
  ({ tokens, register }: SessionsDeps) =>
  async (token: string): Promise<string | undefined> => {
    const claims = await tokens.read(token);
    return (claims && (await register.find(claims.sid)))?.issuerId ?? undefined;
  };

/** Undefined, and nothing ends, where `whose` is. This node drops what it remembers of what ended. */
const endOfIssuer =
  ({ store, register }: SessionsDeps, forgetWhere: TtlCache<KnownSession>["forgetWhere"]) =>
  async (
    issuerId: string,
    whose: (
      session: Session,
    ) => Promise<{ sid?: string | undefined; subjectId?: string | undefined } | undefined>,
  ): Promise<number | undefined> => {
    const ended = await store.write(async (session) => {
      const named = await whose(session);
      return named && new Set(await register.endOfIssuer(session, issuerId, named));
    });
    if (ended && ended.size > 0) forgetWhere(({ caller }) => ended.has(caller.id));
    return ended?.size;
  };

export function openSessions(deps: SessionsDeps) {
  const { store, clock, register, tokens, throttle, users, platformUsers, links, passwords } = deps;

  const remembered = ttlCache<KnownSession>({
    clock,
    keptMs: keyLeaseMs,
    entriesMax: sessionsRemembered,
    read: (token) => read(deps, token),
  });

  /** Verified when there is no such account: a faster answer would reveal that. */
  let hashOfNoAccount: Promise<string> | undefined;

  /** The account that has this email and password; throws `unauthenticated`. */
  async function identify<Account extends { passwordHash: string }>(
    login: { email: string; password: string; address: string; realm: string },
    findByEmail: (email: string) => Promise<Account | undefined>,
  ): Promise<Account> {
    const email = login.email.trim().toLowerCase();
    const account = `${login.realm}\n${email}`;
    const isKnown = await throttle.attempt(account, login.address);
    hashOfNoAccount ??= hashPassword("belongs to no account");
    const user = await findByEmail(email);
    // A user whom an issuer has made has no password, and costs a guess as much as an unknown one.
    const own = user?.passwordHash || undefined;
    const hash = own ?? (await hashOfNoAccount);
    const matches = await verifyPassword(login.password, hash, isKnown ? account : undefined);
    if (!user || own === undefined || !matches) throw badLogin();
    await throttle.succeeded(account, login.address);
    return user;
  }

  /** A new session of the user, while the password is the one that was looked at. */
  const begin = async (id: string, passwordHash: string, from: LoginOrigin) => {
    const made = await store.write(async (session) => {
      const account = await users.noteLogin(session, id, passwordHash);
      // The account changed while the password was compared: the password may be the old one.
      if (!account) throw badLogin();
      const { orgId, tokensAfter } = account;
      if (await passwords.areOff(session, orgId)) throw passwordsOff();
      return register.add(session, { kind: "user", subjectId: id, orgId, after: tokensAfter, from });
    });
    return issue(deps, made);
  };

  return {
    /** The session of a token; undefined when the token is not valid. Cached for half a second. */
    find: (token: string) => remembered.peek(token) ?? remembered.get(token),

    /** `unauthenticated` with the same message and in the same time, whether the account exists or not. */
    async login(email: string, password: string, from: LoginOrigin) {
      const { id, passwordHash } = await identify(
        { email, password, address: from.address, realm: "tenant" },
        users.findByEmail,
      );
      return begin(id, passwordHash, from);
    },

    /**
     * By the sign-in link that the first start printed: once, within ten minutes, from this machine. Anything
     * else is `unauthenticated`.
     */
    async loginByLink(token: string, from: LoginOrigin) {
      const { address } = from;
      await throttle.attempt("sign-in link", address);
      const userId = isLoopbackAddress(address) ? links.take(token) : undefined;
      const user = userId === undefined ? undefined : await users.find(userId);
      if (!user) throw new Fault("unauthenticated", "the sign-in link is used, too old or of another server");
      return begin(user.id, user.passwordHash, from);
    },

    /** The same for a platform user; `permission_denied` for an inactive one who knows the password. */
    async loginToPlatform(email: string, password: string, from: LoginOrigin): Promise<PlatformLogin> {
      const login = { email, password, address: from.address, realm: "platform" };
      const { id, name, ...user } = await identify(login, platformUsers.findByEmail);
      if (!user.isActive) throw new Fault("permission_denied", "the platform user is inactive");
      const made = await store.write(async (session) => {
        const account = await platformUsers.noteLogin(session, id, user.passwordHash);
        if (!account) throw badLogin();
        const { orgId, tokensAfter, breakGlass } = account;
        if (breakGlass) await passwords.recordBreakGlass(session, id, from.address);
        else if (await passwords.areOff(session, orgId)) throw passwordsOff();
        return register.add(session, { kind: "platform", subjectId: id, orgId, after: tokensAfter, from });
      });
      const [{ token }, roles] = await Promise.all([
        issue(deps, made),
        platformUsers.roleNamesOf(user.roles),
      ]);
      return { token, user: { id, email: user.email, name, roles } };
    },

    desktop: desktopOf(deps),

    /** Ends the token's session: at once at this node, at others within `keyLeaseMs`. */
    async logout(token: string) {
      const claims = await tokens.read(token);
      if (!claims) return;
      await register.end(claims.sid);
      remembered.forget(token);
    },

    endOfIssuer: endOfIssuer(deps, remembered.forgetWhere),

    issuerOf: issuerOf(deps),
    /** The id of the token's session. */
    async idOf(token: string): Promise<string | undefined> {
      const claims = await tokens.read(token);
      return claims && register.idOf(claims.sid);
    },
    /** Drops what this node remembers of sessions that are over by now; others do within `keyLeaseMs`. */
    forget: remembered.forgetWhere,
  };
}
