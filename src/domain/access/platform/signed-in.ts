import { Fault } from "../../../kit/fault.ts";
import type { Basics } from "../../../store/store.ts";
import { emailOfAnother, noPassword, readEmail, readUserName } from "../users/rules.ts";
import type { SignedInUsers } from "../users/signed-in.ts";
import type { PlatformAudit } from "./audit.ts";
import type { PlatformUser } from "./rows.ts";
import * as rows from "./rows.ts";
import { platformUsersMax, requireAdminLeft, requireBreakGlassLeft } from "./rules.ts";

/** Users of the platform, as sign-ins by its issuer make and change them; each change is audited. */
export function openSignedInPlatformUsers({
  clock,
  audit,
}: Basics<"clock"> & { audit: Pick<PlatformAudit, "record"> }): SignedInUsers {
  return {
    async enter(session, _orgId, id) {
      const user = await rows.userById(session, id);
      if (!user) return undefined;
      if (!user.isActive) throw new Fault("permission_denied", "the platform user is inactive");
      const { passwordHash, email, tokensAfter } = user;
      await rows.noteLogin(session, { id, passwordHash, at: clock.now() });
      return { email, tokensAfter };
    },

    async make(session, _orgId, { id, email, name }) {
      if ((await rows.allUsers(session)).length >= platformUsersMax)
        throw new Fault("resource_exhausted", `at most ${platformUsersMax} platform users`);
      const at = clock.now();
      const user: PlatformUser = {
        ...{ id, email: readEmail(email), passwordHash: noPassword, roles: [] },
        name: readUserName(name) || readEmail(email),
        ...{ isActive: true, breakGlass: false, tokensAfter: 0 },
        ...{ createdAt: at, updatedAt: at, lastLoginAt: null },
      };
      if (!(await rows.insertUser(session, user))) throw emailOfAnother();
      const payload = { user_id: id, email: user.email, name: user.name, by_issuer: true };
      await audit.record(session, { type: "platform.user.created", by: { kind: "platform", id }, payload });
    },

    async setRoles(session, orgId, id, roleIds) {
      const all = await rows.allUsers(session);
      const before = all.find((user) => user.id === id);
      if (!before || [...before.roles].sort().join() === [...roleIds].sort().join()) return;
      const after = { ...before, roles: [...roleIds] };
      requireAdminLeft(all, before, after);
      if (await rows.holdUsers(session, orgId)) requireBreakGlassLeft(all, before, after);
      await rows.setRoles(session, id, roleIds);
      const payload = { user_id: id, role_ids: roleIds, by_issuer: true };
      await audit.record(session, { type: "platform.user.updated", by: { kind: "platform", id }, payload });
    },
  };
}
