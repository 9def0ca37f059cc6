import type { Instant } from "../../../kit/clock.ts";
import { Fault } from "../../../kit/fault.ts";
import type { Basics, Session } from "../../../store/store.ts";
import { CarriedRoles, type RolesOf } from "./carried-roles.ts";
import * as rows from "./rows.ts";
import { emailOfAnother, noPassword, readEmail, readUserName, usersMax } from "./rules.ts";

/** Whom an issuer names, before there is a user. */
export interface NewPerson {
  id: string;
  email: string;
  name: string;
}

/** What a sign-in needs of an account whose row it has locked. */
export interface SignedInAccount {
  email: string;
  tokensAfter: Instant;
}

/** Users as sign-ins by an issuer make and change them; the session holds their org, or the platform's. */
export interface SignedInUsers {
  /** Locks the user; undefined when the org has none. Throws for one who may not sign in. */
  enter(session: Session, orgId: string, id: string): Promise<SignedInAccount | undefined>;
  /** Without a password and without roles; `already_exists` when the email is another user's. */
  make(session: Session, orgId: string, person: NewPerson): Promise<void>;
  setRoles(session: Session, orgId: string, id: string, roleIds: readonly string[]): Promise<void>;
}

export function openSignedInUsers({ clock, rolesOf }: Basics<"clock"> & { rolesOf: RolesOf }): SignedInUsers {
  const carried = new CarriedRoles(rolesOf);
  return {
    async enter(session, orgId, id) {
      const user = await rows.holdUser(session, id);
      if (user?.orgId !== orgId) return undefined;
      const { passwordHash, email, tokensAfter } = user;
      await rows.noteLogin(session, { id, passwordHash, at: clock.now() });
      return { email, tokensAfter };
    },

    async make(session, orgId, { id, email, name }) {
      if ((await rows.countUsers(session, orgId)) >= usersMax)
        throw new Fault("resource_exhausted", `at most ${usersMax} users`);
      const user = { id, orgId, email: readEmail(email), name: readUserName(name), roles: [] };
      const isMade = await rows.insertUser(session, { ...user, passwordHash: noPassword, at: clock.now() });
      if (!isMade) throw emailOfAnother();
    },

    async setRoles(session, orgId, id, roleIds) {
      await rows.setRoles(session, id, await carried.read(session, orgId, roleIds));
    },
  };
}
