import type { Instant } from "./clock.ts";
import { Fault } from "./fault.ts";

/** The caller: the result of authentication, with nothing left that a handler could forget to check. */
export interface Caller {
  kind: "key" | "user" | "platform" | "anonymous" | "dev";
  /**
   * Id of the key (`ak_…`) or of the user, at most 255 bytes. Audit rows and logs name it. A key or a user
   * keeps its id, and the id is never used for another one.
   */
  id: string;
  /** The org that the call acts in; a platform credential's own is `org_platform`. */
  orgId: string;
  roles: readonly string[];
  /** A platform credential that acts in a tenant's org by `X-Svc-Org`. */
  impersonates?: boolean;
  /** Of a user. */
  email?: string;
  /** Of a key, as of its look-up: sessions made with it before are believed no more. A rotation raises it. */
  tokensAfter?: Instant;
}

/** A platform credential that acts for the platform, not in a tenant's org. */
export const actsForPlatform = ({ kind, impersonates }: Pick<Caller, "kind" | "impersonates">): boolean =>
  kind === "platform" && impersonates !== true;

/** Those that operate the installation: platform credentials, and the developer of a server in dev mode. */
export const operates = ({ kind }: Pick<Caller, "kind">): boolean => kind === "platform" || kind === "dev";

export function requireOperator(caller: Pick<Caller, "kind">): void {
  if (!operates(caller)) throw new Fault("permission_denied", "platform credential required");
}

/** Who asked for what is done later: the credential is looked up again when it is done. */
export type Starter = Pick<Caller, "kind" | "id" | "orgId" | "impersonates">;

export const starterOf = ({ kind, id, orgId, impersonates }: Caller): Starter => ({
  ...{ kind, id, orgId },
  ...(impersonates && { impersonates }),
});

/** What clients send that mean the environment of their key; none can have it as its name. */
export const ownEnvironment = "current";

/** The environment that a header or a query names; undefined when it names none. */
export const namedEnvironment = (text: string | null | undefined): string | undefined =>
  !text || text === ownEnvironment ? undefined : text;
