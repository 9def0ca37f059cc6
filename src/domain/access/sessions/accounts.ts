import { platformOrgId } from "../../../gate/gate.ts";
import type { Caller } from "../../../kit/caller.ts";
import type { Instant } from "../../../kit/clock.ts";
import type { Session } from "../../../store/store.ts";
import type { Keys } from "../keys/service.ts";
import type { LoggedIn, Users } from "../users/service.ts";
import type { TokenClaims } from "./tokens.ts";

/** The caller of a token, as authentication needs it. */
export interface KnownSession {
  readonly id: string;
  readonly caller: Caller;
  /** The environment that a desktop session is bound to; other sessions choose among those of their org. */
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
export interface PlatformAccounts {
  find(id: string): Promise<PlatformAccount | undefined>;
  findByEmail(email: string): Promise<PlatformAccount | undefined>;
  /** Locks the account's row; undefined when the password has changed since this hash was read. */
  noteLogin(
    session: Session,
    id: string,
    passwordHash: string,
  ): Promise<(LoggedIn & { breakGlass: boolean }) | undefined>;
  roleNamesOf(roleIds: readonly string[]): Promise<string[]>;
}

/** Whom a session acts as. A session that began before `tokensAfter` is over. */
export interface Account extends Omit<KnownSession, "id" | "expiresAt"> {
  tokensAfter: Instant;
  expiresAt?: Instant | undefined;
}

/**
 * The key, platform user or user that a token was made for, as they are now; undefined when they are gone.
 */
export async function accountOf(
  {
    keys,
    users,
    platformUsers,
  }: {
    keys: Pick<Keys, "byId">;
    users: Pick<Users, "find">;
    platformUsers: Pick<PlatformAccounts, "find">;
  },
  { kind, subject }: TokenClaims,
): Promise<Account | undefined> {
  if (kind === "desktop") {
    const key = await keys.byId(subject);
    if (!key) return undefined;
    const { caller, environmentId, expiresAt } = key;
    // Kind `user`: a session acts with the roles of its key but cannot make further sessions.
    return {
      caller: { ...caller, kind: "user" },
      environmentId,
      expiresAt,
      tokensAfter: caller.tokensAfter ?? 0,
    };
  }
  if (kind === "platform") {
    const user = await platformUsers.find(subject);
    if (!user?.isActive) return undefined;
    const { id, roles, email, tokensAfter } = user;
    const caller: Caller = { kind: "platform", id, orgId: platformOrgId, roles, email };
    return { caller, environmentId: undefined, tokensAfter };
  }
  const user = await users.find(subject);
  if (!user) return undefined;
  const { id, orgId, roleIds, email, tokensAfter } = user;
  const caller: Caller = { kind: "user", id, orgId, roles: roleIds, email };
  return { caller, environmentId: undefined, tokensAfter };
}
