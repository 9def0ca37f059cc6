import type { Clock } from "../../kit/clock.ts";
import { Fault } from "../../kit/fault.ts";
import { keyLeaseMs } from "../../kit/limits.ts";
import type { Caller } from "../../kit/operation.ts";
import { hashPassword, verifyPassword } from "../../kit/password.ts";
import { remember } from "../../kit/remember.ts";
import type { Keys, KnownKey } from "../keys/service.ts";
import type { Users } from "../users/service.ts";
import type { Throttle } from "./throttle.ts";
import type { Tokens } from "./tokens.ts";

/** Who a token speaks for, as authentication needs it. */
export interface KnownSession {
  readonly caller: Caller;
  /** The one environment that a desktop session is bound to; others choose among those of their org. */
  readonly environmentId: string | undefined;
  readonly expiresAt: number;
}

export interface PlatformAccount {
  id: string;
  email: string;
  name: string;
  passwordHash: string;
  roles: readonly string[];
  tokensAfter: number;
  isActive: boolean;
}

/** Users of the platform, as sessions need them. */
export interface PlatformUsers {
  find(id: string): Promise<PlatformAccount | undefined>;
  findByEmail(email: string): Promise<PlatformAccount | undefined>;
  /** False when the account was changed since this was its password's hash. */
  noteLogin(id: string, passwordHash: string): Promise<boolean>;
  roleNamesOf(roleIds: readonly string[]): Promise<string[]>;
}

export interface PlatformLogin {
  token: string;
  user: { id: string; email: string; name: string; roles: string[] };
}

export interface Sessions {
  /** Whose token this is; undefined for one that is not valid, or not any more. Believed for half a second. */
  find(token: string): KnownSession | undefined | Promise<KnownSession | undefined>;
  /** `unauthenticated` in the same words and time whether the account exists or not. */
  login(email: string, password: string, address: string): Promise<{ token: string; expiresAt: number }>;
  /** The same for a user of the platform; `permission_denied` for an inactive one who knows the password. */
  loginToPlatform(email: string, password: string, address: string): Promise<PlatformLogin>;
  /** For a caller who came with an API key. */
  desktop(caller: Caller): Promise<{ token: string; expiresAt: number }>;
}

export interface SessionsDeps {
  clock: Clock;
  tokens: Tokens;
  throttle: Throttle;
  users: Users;
  keys: Pick<Keys, "byId">;
  platformUsers: PlatformUsers;
}

const sessionsRemembered = 10_000;
export const badLogin = (): Fault => new Fault("unauthenticated", "Invalid email or password");

export function openSessions(deps: SessionsDeps): Sessions {
  const { clock, tokens, throttle, users, keys, platformUsers } = deps;

  async function read(token: string): Promise<KnownSession | undefined> {
    const claims = await tokens.read(token);
    if (!claims) return undefined;
    const { subject, issuedAt, expiresAt } = claims;
    if (claims.kind === "desktop") {
      const key: KnownKey | undefined = await keys.byId(subject);
      if (!key || (key.expiresAt !== undefined && key.expiresAt <= clock.now())) return undefined;
      // It acts as the key, but is no key: it makes no further sessions.
      return { caller: { ...key.caller, kind: "user" }, environmentId: key.environmentId, expiresAt };
    }
    if (claims.kind === "platform") {
      const user = await platformUsers.find(subject);
      if (!user?.isActive || issuedAt < user.tokensAfter) return undefined;
      const caller: Caller = {
        kind: "platform",
        id: user.id,
        orgId: "org_platform",
        roles: user.roles,
        email: user.email,
      };
      return { caller, environmentId: undefined, expiresAt };
    }
    const user = await users.find(subject);
    if (!user || issuedAt < user.tokensAfter) return undefined;
    const { id, orgId, roles, email } = user;
    return { caller: { kind: "user", id, orgId, roles, email }, environmentId: undefined, expiresAt };
  }

  const remembered = remember<KnownSession>({
    clock,
    keptMs: keyLeaseMs,
    entriesMax: sessionsRemembered,
    read,
  });

  /** What a password is compared with when there is no such account: the answer takes as long. */
  let nobody: Promise<string> | undefined;

  /** The account whose password this is. */
  async function identify<Account extends { passwordHash: string }>(
    login: { email: string; password: string; address: string; realm: string },
    findByEmail: (email: string) => Promise<Account | undefined>,
  ): Promise<Account> {
    const { password, address, realm } = login;
    const email = login.email.trim().toLowerCase();
    const account = `${realm}\n${email}`;
    await throttle.attempt(account, address);
    nobody ??= hashPassword("nobody has this password");
    const user = await findByEmail(email);
    const matches = await verifyPassword(password, user?.passwordHash ?? (await nobody));
    if (!user || !matches) throw badLogin();
    await throttle.succeeded(account, address);
    return user;
  }

  return {
    find: (token) => remembered.known(token) ?? remembered.of(token),

    async login(email, password, address) {
      const user = await identify({ email, password, address, realm: "tenant" }, users.findByEmail);
      await users.noteLogin(user.id);
      return tokens.issue("user", user.id);
    },

    async loginToPlatform(email, password, address) {
      const login = { email, password, address, realm: "platform" };
      const { id, name, ...user } = await identify(login, platformUsers.findByEmail);
      if (!user.isActive) throw new Fault("permission_denied", "the platform user is inactive");
      // Changed while the password was compared: it may be the old one.
      if (!(await platformUsers.noteLogin(id, user.passwordHash))) throw badLogin();
      const [{ token }, roles] = await Promise.all([
        tokens.issue("platform", id),
        platformUsers.roleNamesOf(user.roles),
      ]);
      return { token, user: { id, email: user.email, name, roles } };
    },

    async desktop(caller) {
      if (caller.kind !== "key") throw new Fault("unauthenticated", "an API key is required");
      return tokens.issue("desktop", caller.id);
    },
  };
}
