import { hash } from "node:crypto";
import type { Caller } from "../../../kit/caller.ts";
import type { Instant } from "../../../kit/clock.ts";
import { Fault, missing } from "../../../kit/fault.ts";
import type { Basics, Session } from "../../../store/store.ts";
import type { RoleScope } from "../roles/service.ts";
import type { SessionRegister } from "../sessions/register.ts";
import type { Sessions } from "../sessions/service.ts";
import * as rows from "./rows.ts";

/** A person of a provider as which a user may sign in. */
export interface JoinedIdentity {
  id: string;
  issuer: string;
  /** The issuer's id and name; undefined where the org has it no more. */
  of: Pick<rows.Issuer, "id" | "name" | "isEnabled"> | undefined;
  subject: string;
  joinedAt: Instant;
}

export type Identities = ReturnType<typeof openIdentities>;

export interface IdentitiesDeps extends Basics<"store"> {
  register: Pick<SessionRegister, "endFromIssuers">;
  sessions: Pick<Sessions, "forget">;
  /** Called for each change in the platform's own org, in its transaction. */
  record: (session: Session, by: Caller, payload: Record<string, unknown>) => Promise<void>;
  /** Called after sessions of the org ended. */
  onEnded: (orgId: string) => void;
}

const idOf = ({ orgId, issuer, subject }: rows.NamedPerson): string =>
  `idn_${hash("sha256", JSON.stringify([orgId, issuer, subject]), "hex").slice(0, 26)}`;

const lastWay = (): Fault =>
  new Fault(
    "failed_precondition",
    "the user could sign in by nothing else: let it join another sign-in first, or set a password where passwords are on",
    { code: "LAST_WAY_IN" },
  );

/** As whom users sign in, for those who manage them. */
export function openIdentities({ store, register, sessions, record, onEnded }: IdentitiesDeps) {
  async function read(reader: Pick<Session, "all" | "one">, scope: RoleScope, userId: string) {
    const password = await rows.passwordOf(reader, scope, userId);
    if (!password) throw missing("user", userId);
    const [people, issuers] = [
      await rows.identitiesOf(reader, scope.orgId, userId),
      await rows.issuersOf(reader, scope.orgId),
    ];
    const identities = people.map(
      ({ issuer, subject, created_at }): JoinedIdentity => ({
        ...{ id: idOf({ orgId: scope.orgId, issuer, subject }), issuer, subject, joinedAt: created_at },
        of: issuers.find((one) => one.issuer === issuer),
      }),
    );
    return { password, identities, issuers };
  }

  return {
    /** Oldest first. */
    list: async (scope: RoleScope, userId: string): Promise<JoinedIdentity[]> =>
      (await read(store, scope, userId)).identities,

    /**
     * Sessions that came from there, or from an issuer that is there no more, end with it.
     * `failed_precondition` for what is the user's last way in.
     */
    async unlink(scope: RoleScope, userId: string, id: string, by: Caller): Promise<void> {
      const { orgId, kind } = scope;
      const ended = await store.write(async (session) => {
        // Sign-ins and changes of passwords hold it, too.
        const org = await rows.holdOrg(session, orgId);
        if (!org) throw missing("user", userId);
        const { password, identities, issuers } = await read(session, scope, userId);
        const identity = identities.find((one) => one.id === id);
        if (!identity) throw missing("identity", id);
        const byPassword = password.isSet && (!org.arePasswordsOff || password.breaksGlass);
        if (!byPassword && !identities.some((one) => one.id !== id && one.of?.isEnabled)) throw lastWay();
        const { issuer, subject } = identity;
        await rows.dropIdentity(session, { orgId, issuer, subject });
        if (kind === "platform") await record(session, by, { user_id: userId, unlinked: issuer });
        const others = issuers.flatMap((one) => (one.issuer === issuer ? [] : one.id));
        return register.endFromIssuers(session, userId, others);
      });
      if (ended === 0) return;
      sessions.forget(({ caller }) => caller.id === userId);
      onEnded(orgId);
    },
  };
}
