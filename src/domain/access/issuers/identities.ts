import { hash } from "node:crypto";
import type { Caller } from "../../../kit/caller.ts";
import type { Instant } from "../../../kit/clock.ts";
import { Fault, missing } from "../../../kit/fault.ts";
import type { Basics, Session } from "../../../store/store.ts";
import type { RoleScope } from "../roles/service.ts";
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
  sessions: Pick<Sessions, "endOfIssuer">;
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
export function openIdentities({ store, sessions, record, onEnded }: IdentitiesDeps) {
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
    return { password, identities };
  }

  return {
    /** Oldest first. */
    list: async (scope: RoleScope, userId: string): Promise<JoinedIdentity[]> =>
      (await read(store, scope, userId)).identities,

    /** Sessions that came from there end. `failed_precondition` for what is the user's last way in. */
    async unlink(scope: RoleScope, userId: string, id: string, by: Caller): Promise<void> {
      const { orgId, kind } = scope;
      const gone = await store.write(async (session) => {
        // Sign-ins and changes of passwords hold it, too.
        const org = await rows.holdOrg(session, orgId);
        if (!org) throw missing("user", userId);
        const { password, identities } = await read(session, scope, userId);
        const identity = identities.find((one) => one.id === id);
        if (!identity) throw missing("identity", id);
        const byPassword = password.isSet && (!org.arePasswordsOff || password.breaksGlass);
        if (!byPassword && !identities.some((one) => one.id !== id && one.of?.isEnabled)) throw lastWay();
        const { issuer, subject } = identity;
        await rows.dropIdentity(session, { orgId, issuer, subject });
        if (kind === "platform") await record(session, by, { user_id: userId, unlinked: issuer });
        return identity;
      });
      if (gone.of && (await sessions.endOfIssuer(gone.of.id, { subjectId: userId })) > 0) onEnded(orgId);
    },
  };
}
