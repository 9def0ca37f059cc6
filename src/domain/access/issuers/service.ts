import { stated } from "../../../kit/cases.ts";
import { Fault, invalid, missing } from "../../../kit/fault.ts";
import type { Basics, Session } from "../../../store/store.ts";
import type { Keyring } from "../keyring/service.ts";
import { adminRoleId } from "../platform/rules.ts";
import type { RoleScope, Roles } from "../roles/service.ts";
import type { OpenedIssuer } from "./exchange.ts";
import { issuersMax, mappingMax } from "./limits.ts";
import type { Issuer, IssuerRow } from "./rows.ts";
import * as rows from "./rows.ts";
import * as rules from "./rules.ts";

export type { Issuer } from "./rows.ts";
export { arePasswordsOff, dropIdentitiesOf } from "./rows.ts";

export interface IssuerChange {
  name?: string | undefined;
  clientId?: string | undefined;
  /** An empty one takes the secret away. */
  clientSecret?: string | undefined;
  scopes?: string | undefined;
  rolesClaim?: string | undefined;
  isEnabled?: boolean | undefined;
  endsAtProvider?: boolean | undefined;
  /** Replaces the whole mapping; roles by id or name. */
  roles?: readonly { value: string; role: string }[] | undefined;
}

export interface NewIssuer extends IssuerChange {
  name: string;
  issuer: string;
  clientId: string;
}

/** An issuer as callers see it: without its secret, its roles with the names of now. */
export interface ShownIssuer extends Omit<Issuer, "roles" | "sealedSecret"> {
  hasSecret: boolean;
  roles: { value: string; roleId: string; name: string | undefined }[];
}

/** What the platform's audit keeps of a change. */
export interface IssuerAudit {
  change: "created" | "updated" | "deleted" | "passwords";
  issuer_id?: string;
  issuer?: string;
  passwords?: boolean;
}

export type Issuers = ReturnType<typeof openIssuers>;

export interface IssuersDeps extends Basics<"store" | "clock" | "ids"> {
  keyring: Pick<Keyring, "seal" | "unseal" | "writeSealed">;
  roles: Pick<Roles, "known">;
  allowsHttp: boolean;
  /** Called for each change, in its transaction. */
  record: (session: Session, scope: RoleScope, change: IssuerAudit) => Promise<void>;
}

/** Where a client's secret is sealed for. */
const placeOf = (id: string): string => `issuer ${id}`;

const urlTaken = () => new Fault("already_exists", "the org has this issuer already", { field: "issuer" });

/** Undefined fields stay. */
const readChange = ({
  name,
  clientId,
  scopes,
  rolesClaim,
  isEnabled,
  endsAtProvider,
}: IssuerChange): Partial<IssuerRow> => ({
  ...(name !== undefined && { name: rules.readLabel(name) }),
  ...(clientId !== undefined && { clientId: rules.readClientId(clientId) }),
  ...(scopes !== undefined && { scopes: rules.readScopes(scopes) }),
  ...(rolesClaim !== undefined && { rolesClaim: rules.readRolesClaim(rolesClaim) }),
  ...stated({ isEnabled, endsAtProvider }),
});

async function hold(session: Session, { orgId }: RoleScope) {
  const org = await rows.holdOrg(session, orgId);
  if (!org) throw missing("org", orgId);
  return org;
}

/** Whether passwords sign in besides issuers. */
const passwordsOf = ({ store, record }: Pick<IssuersDeps, "store" | "record">) => ({
  /** Whether users of the scope may sign in by a password. */
  arePasswordsOn: async ({ orgId }: RoleScope) => !(await rows.arePasswordsOff(store, orgId)),

  /**
   * `failed_precondition` without an enabled issuer; of the platform also without an active platform_admin
   * whose password always works.
   */
  async setPasswords(scope: RoleScope, areOn: boolean): Promise<void> {
    await store.write(async (session) => {
      await hold(session, scope);
      if (!areOn) await requireOtherWay(session, scope);
      await rows.setPasswordsOff(session, scope.orgId, !areOn);
      await record(session, scope, { change: "passwords", passwords: areOn });
    });
  },
});

async function requireOtherWay(session: Session, { orgId, kind }: RoleScope): Promise<void> {
  if (!(await rows.issuersOf(session, orgId)).some(({ isEnabled }) => isEnabled))
    throw new Fault("failed_precondition", "passwords can be off only where an issuer is enabled");
  if (kind === "tenant") return;
  if (!(await rows.breakGlassRoles(session)).some((roleIds) => roleIds.includes(adminRoleId)))
    throw new Fault(
      "failed_precondition",
      "give an active platform_admin with a password break_glass first: without the provider nobody could sign in",
    );
}

/** Every change locks the org until it commits. */
export function openIssuers(deps: IssuersDeps) {
  const { store, clock, ids, keyring, roles, allowsHttp, record } = deps;

  const shown = async (scope: RoleScope, issuers: readonly Issuer[]): Promise<ShownIssuer[]> => {
    const names = new Map((await roles.known(store, scope)).map(({ id, name }) => [id, name]));
    return issuers.map(({ sealedSecret, ...issuer }) => ({
      ...issuer,
      hasSecret: sealedSecret !== "",
      roles: issuer.roles.map((one) => ({ ...one, name: names.get(one.roleId) })),
    }));
  };

  async function find(session: Session, scope: RoleScope, id: string): Promise<Issuer> {
    const issuer = await rows.issuerById(session, id);
    if (issuer?.orgId !== scope.orgId) throw missing("issuer", id);
    return issuer;
  }

  /** An org whose passwords are off keeps an enabled issuer: its people could not sign in otherwise. */
  async function requireOneLeft(session: Session, { orgId }: RoleScope): Promise<void> {
    if ((await rows.issuersOf(session, orgId)).some(({ isEnabled }) => isEnabled)) return;
    throw new Fault("failed_precondition", "passwords are off: an enabled issuer must stay");
  }

  async function setMapping(
    session: Session,
    scope: RoleScope,
    id: string,
    wanted: NonNullable<IssuerChange["roles"]>,
  ): Promise<void> {
    const mapping = rules.readMapping(wanted, await roles.known(session, scope));
    await rows.setMapping(session, { id, orgId: scope.orgId }, mapping);
  }

  /** The secret as it is stored; sealed anew at each try of a write. */
  const sealed = (id: string, secret: string): string =>
    secret === "" ? "" : keyring.seal(placeOf(id), secret);
  const sealedOf = ({ sealedSecret }: IssuerRow): string[] => (sealedSecret === "" ? [] : [sealedSecret]);

  const one = async (scope: RoleScope, issuer: Issuer): Promise<ShownIssuer> =>
    (await shown(scope, [issuer]))[0]!;

  return {
    list: async (scope: RoleScope) => shown(scope, await rows.issuersOf(store, scope.orgId)),

    async get(scope: RoleScope, id: string): Promise<ShownIssuer> {
      const issuer = await rows.issuerById(store, id);
      if (issuer?.orgId !== scope.orgId) throw missing("issuer", id);
      return one(scope, issuer);
    },

    async create(scope: RoleScope, wanted: NewIssuer): Promise<ShownIssuer> {
      const { scopes = rules.scopesDefault, rolesClaim = rules.rolesClaimDefault } = wanted;
      const { isEnabled = true, endsAtProvider = false } = wanted;
      const issuer = rules.readIssuerUrl(wanted.issuer, allowsHttp);
      const whole = { ...wanted, scopes, rolesClaim, isEnabled, endsAtProvider };
      const read = readChange(whole) as Omit<IssuerRow, "id">;
      const secret = rules.readClientSecret(wanted.clientSecret ?? "");
      requireFewRoles(wanted.roles);
      const at = clock.now();
      const id = ids.next("iss");
      const made = await keyring.writeSealed(async (session) => {
        await hold(session, scope);
        if ((await rows.issuersOf(session, scope.orgId)).length >= issuersMax)
          throw new Fault("resource_exhausted", `at most ${issuersMax} issuers`);
        const row: IssuerRow = {
          ...{ ...read, id, orgId: scope.orgId, issuer, sealedSecret: sealed(id, secret) },
          ...{ createdAt: at, updatedAt: at },
        };
        if (!(await rows.insertIssuer(session, row))) throw urlTaken();
        await setMapping(session, scope, id, wanted.roles ?? []);
        await record(session, scope, { change: "created", issuer_id: id, issuer });
        return { result: await find(session, scope, id), sealed: sealedOf(row) };
      });
      return one(scope, made);
    },

    async update(scope: RoleScope, id: string, change: IssuerChange): Promise<ShownIssuer> {
      const read = readChange(change);
      const secret =
        change.clientSecret === undefined ? undefined : rules.readClientSecret(change.clientSecret);
      requireFewRoles(change.roles);
      const changed = await keyring.writeSealed(async (session) => {
        const { arePasswordsOff } = await hold(session, scope);
        const { roles: _, ...before } = await find(session, scope, id);
        const row: IssuerRow = {
          ...{ ...before, ...read, updatedAt: clock.now() },
          ...(secret !== undefined && { sealedSecret: sealed(id, secret) }),
        };
        await rows.updateIssuer(session, row);
        if (change.roles) await setMapping(session, scope, id, change.roles);
        if (arePasswordsOff) await requireOneLeft(session, scope);
        await record(session, scope, { change: "updated", issuer_id: id, issuer: row.issuer });
        return { result: await find(session, scope, id), sealed: sealedOf(row) };
      });
      return one(scope, changed);
    },

    /** Sessions that came from it go on; the people stay, and are themselves when it is made again. */
    async remove(scope: RoleScope, id: string): Promise<void> {
      await store.write(async (session) => {
        const { arePasswordsOff } = await hold(session, scope);
        const issuer = await find(session, scope, id);
        await rows.deleteIssuer(session, issuer);
        if (arePasswordsOff) await requireOneLeft(session, scope);
        await record(session, scope, { change: "deleted", issuer_id: id, issuer: issuer.issuer });
      });
    },

    ...passwordsOf(deps),
    ...openedIssuers(deps),
  };
}

function requireFewRoles(roles: IssuerChange["roles"]): void {
  if (roles && roles.length > mappingMax) throw invalid("roles", `at most ${mappingMax}`);
}

/** Issuers as sign-ins need them, of any org. */
const openedIssuers = ({ store, keyring }: Pick<IssuersDeps, "store" | "keyring">) => ({
  /** What anyone may see who wants to sign in: issuers of the org that are enabled. */
  async offered(orgId: string): Promise<Pick<Issuer, "id" | "name" | "orgId">[]> {
    const found = await rows.issuersOf(store, orgId);
    return found
      .filter(({ isEnabled }) => isEnabled)
      .map(({ id, name, orgId: of }) => ({ id, name, orgId: of }));
  },

  async opened(id: string): Promise<OpenedIssuer | undefined> {
    const issuer = await rows.issuerById(store, id);
    if (!issuer) return undefined;
    const { sealedSecret } = issuer;
    const clientSecret = sealedSecret === "" ? "" : await keyring.unseal(placeOf(id), sealedSecret);
    return { ...issuer, clientSecret };
  },

  /** Seals every secret again, in the transaction that rotates the master key. */
  async reseal(session: Session, again: (place: string, sealed: string) => string): Promise<void> {
    for (const { id, client_secret } of await rows.everySecret(session))
      await rows.resealSecret(session, id, again(placeOf(id), client_secret));
  },
});
