import { dropIdentitiesOf } from "../domain/access/issuers/service.ts";
import { openKeyring } from "../domain/access/keyring/service.ts";
import { bootstrap, dashboardEmail } from "../domain/access/keys/bootstrap.ts";
import type { KeyChange } from "../domain/access/keys/manage.ts";
import { keys as openKeys } from "../domain/access/keys/service.ts";
import { openPlatformAudit, type PlatformAudit } from "../domain/access/platform/audit.ts";
import { openPlatformUsers, openSignedInPlatformUsers } from "../domain/access/platform/service.ts";
import { openSnapshots } from "../domain/access/policies/service.ts";
import { platformScope } from "../domain/access/roles/rules.ts";
import { openRoles, type RoleChange, type RoleScope } from "../domain/access/roles/service.ts";
import { openSessionRegister, type SessionKind, sessionMs } from "../domain/access/sessions/register.ts";
import { openSignInLinks } from "../domain/access/sessions/service.ts";
import { tenancy as openTenancy } from "../domain/access/tenancy/service.ts";
import { openSignedInUsers, users as openUsers, type RolesOf } from "../domain/access/users/service.ts";
import { bootstrapKeyFileOf, masterKeyFileOf } from "../settings/settings.ts";
import type { Session } from "../store/store.ts";
import type { Host, PartShape } from "./part.ts";

/**
 * Who there is: orgs and environments, users and keys with their sessions and roles, of tenants and of the
 * platform.
 */
export type People = ReturnType<typeof openPeople>;

export type IdentityPart = Awaited<ReturnType<typeof openIdentity>>;

/** Whom the first boot makes, for people who log in. */
export const dashboardAddress = dashboardEmail;

export interface IdentityNeeds {
  /** Seals what a part has stored again with the new master key; called at its rotation. */
  reseal: NonNullable<Parameters<typeof openKeyring>[0]["reseal"]>;
}

/** Records changes of the platform's roles and keys in its audit; it records nothing of tenants. */
function recordsOf(audit: PlatformAudit) {
  return {
    role: (session: Session, { kind, by }: RoleScope, payload: RoleChange) =>
      kind === "platform"
        ? audit.record(session, { type: "platform.role.changed", by, payload: { ...payload } })
        : Promise.resolve(),
    async key(session: Session, { kind, by }: RoleScope, payload: KeyChange): Promise<void> {
      if (kind !== "platform") return;
      const types = { created: "created", deleted: "revoked", rotated: "revoked" } as const;
      const type =
        payload.change === "roles_replaced"
          ? "platform.role.changed"
          : (`platform.key.${types[payload.change]}` as const);
      await audit.record(session, { type, by, payload: { ...payload } });
    },
  };
}

function openPeople({ config, store, clock, ids, log, changes }: Host) {
  const tenancy = openTenancy({ store, clock, ids, log, strictEnvironment: config.strictEnvironment });
  const register = openSessionRegister({ store, clock, ids, ttlMs: sessionMs });
  const endSessions = (kind: SessionKind) => (session: Session, id: string) =>
    register.endOf(session, kind, id);
  const keys = openKeys({ store, clock, ids, endSessions: endSessions("desktop") });
  const rolesOf: RolesOf = (reader, orgId) => roles.known(reader, { orgId, kind: "tenant" });
  const users = openUsers({
    ...{ store, clock, ids, tenancy, rolesOf, dropIdentities: dropIdentitiesOf },
    endSessions: endSessions("user"),
  });
  const platformAudit = openPlatformAudit({
    ...{ store, clock, ids, log },
    onWritten: () => changes.ofPlatform("audit"),
  });
  const record = recordsOf(platformAudit);
  const snapshots = openSnapshots({ store, clock });
  const carriers = ({ kind }: RoleScope) => ({
    user: kind === "platform" ? platformUsers : users,
    key: keys,
  });
  const roles = openRoles({ store, clock, ids, carriers, changed: snapshots.forget, record: record.role });
  const platformUsers = openPlatformUsers({
    ...{ store, clock, ids, roles },
    audit: platformAudit,
    scope: platformScope(),
    endSessions: endSessions("platform"),
    dropIdentities: dropIdentitiesOf,
  });
  const signedIn = {
    tenant: openSignedInUsers({ clock, rolesOf }),
    platform: openSignedInPlatformUsers({ clock, audit: platformAudit }),
  };
  const recordKey = record.key;
  return {
    tenancy,
    register,
    keys,
    users,
    platformUsers,
    signedIn,
    roles,
    snapshots,
    platformAudit /** Records in the platform's audit that one of its keys changed, in the transaction of the change. */,
    recordKey,
  };
}

/** Opens what the first boot needs, and boots: defaults, the admin key and user, and the keyring. */
export async function openIdentity(host: Host, { reseal }: IdentityNeeds) {
  const { config, store, clock, ids, log } = host;
  const people = openPeople(host);
  const { keys, users, register, platformAudit } = people;
  await people.tenancy.createDefaults();
  const bootstrapKeyFile = bootstrapKeyFileOf(config);
  const links = openSignInLinks({ clock, ids });
  /** Signs the first user in once; of the boot that made it. */
  let signInToken: string | undefined;
  // The hash of the first password is computed beside this thread: the keyring is opened meanwhile.
  const [bootstrapped, keyring] = await Promise.all([
    bootstrap({
      ...{ store, clock, ids, log, keys, users, path: bootstrapKeyFile },
      adminKey: config.bootstrapAdminKey,
      adminPassword: config.bootstrapAdminPassword,
      onFirstUser(id) {
        signInToken = links.issue(id);
      },
    }),
    openKeyring({
      ...{ store, clock, ids, log, reseal },
      masterKey: config.masterKey,
      masterFile: masterKeyFileOf(config),
      given: { jwt_secret: config.jwtSecret, signing_key: config.signingKey },
    }),
  ]);
  return {
    ...people,
    ...{ keyring, bootstrapped, bootstrapKeyFile, links, signInToken },
    operations: [],
    loops: [
      {
        name: "keys.used",
        about: "Writes when each API key was last used, in one statement.",
        everyMs: 5_000,
        tick: keys.writeUsed,
      },
      {
        name: "sessions.used",
        about: "Writes when each session was last used, in one statement.",
        everyMs: 5_000,
        tick: register.writeUsed,
      },
      {
        name: "keyring.follow",
        about: "Takes up secrets that other nodes rotated.",
        everyMs: 30_000,
        tick: keyring.refresh,
      },
      {
        name: "platform.audit",
        about: "Writes what platform credentials did in tenants' orgs, many rows a statement.",
        everyMs: 1_000,
        tick: platformAudit.writeOnce,
      },
    ],
    duties: [platformAudit.duty],
    async close() {
      await Promise.all([
        keys.writeUsed().catch((error) => log.warn("keys.used_lost", { error })),
        register.writeUsed().catch((error) => log.warn("sessions.used_lost", { error })),
        platformAudit.writeOnce().catch((error) => log.warn("platform.audit_lost", { error })),
      ]);
    },
  } satisfies PartShape;
}
