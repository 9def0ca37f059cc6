import { hash } from "node:crypto";
import { actsForPlatform, type Caller } from "../../../kit/caller.ts";
import type { Clock, Instant } from "../../../kit/clock.ts";
import { Fault, invalid } from "../../../kit/fault.ts";
import type { Ids } from "../../../kit/ids.ts";
import { idempotencyKeptMs } from "../../../kit/limits.ts";
import type { Log } from "../../../kit/log.ts";
import { sql } from "../../../kit/sql.ts";
import type { Session, Store } from "../../../store/store.ts";
import type { RowOf } from "../../../store/tables/index.ts";
import type { Keyring } from "../../access/keyring/service.ts";
import type { Keys } from "../../access/keys/service.ts";
import { defaultOrgId } from "../../access/tenancy/rules.ts";
import type { Tenancy } from "../../access/tenancy/service.ts";
import { clusterHealth, type HealthDeps } from "./health.ts";

/** A finished rotation, to answer a repeated Idempotency-Key. */
interface RotationRow
  extends RowOf<"rotations", "id, org_id, idempotency_key, request_hash, kind, rotated_at, actor_id"> {
  /** JSON array of node ids. */
  confirmed: string;
}

const findRotation = (session: Session, orgId: string, key: string): Promise<RotationRow | undefined> =>
  session.one<RotationRow>(sql`SELECT id, org_id, idempotency_key, request_hash, kind, rotated_at, actor_id, confirmed
    FROM rotations WHERE org_id = ${orgId} AND idempotency_key = ${key}`);

/** False when another request used the same key and has ended. */
async function insertRotation(session: Session, row: RotationRow): Promise<boolean> {
  const inserted = await session.run(sql`INSERT INTO rotations
      (id, org_id, idempotency_key, request_hash, kind, rotated_at, actor_id, confirmed)
    VALUES (${row.id}, ${row.org_id}, ${row.idempotency_key}, ${row.request_hash}, ${row.kind}, ${row.rotated_at},
      ${row.actor_id}, ${row.confirmed})
    ON CONFLICT (org_id, idempotency_key) WHERE idempotency_key IS NOT NULL DO NOTHING`);
  return inserted === 1;
}

const confirmRotation = (session: Session, id: string, nodeIds: readonly string[]): Promise<number> =>
  session.run(sql`UPDATE rotations SET confirmed = ${JSON.stringify(nodeIds)} WHERE id = ${id}`);

const purgeRotations = (session: Session, before: Instant): Promise<number> =>
  session.run(sql`DELETE FROM rotations WHERE rotated_at < ${before}`);

export interface RotateInput {
  kind: string;
  new_value: string;
  remote_key_id?: string;
}

export interface Rotation {
  rotatedAt: Instant;
  /** Nodes that use the new value already; the others follow by themselves within seconds. */
  confirmed: string[];
  /** The answer of an earlier request with the same key. */
  replayed: boolean;
}

export type Cluster = ReturnType<typeof openCluster>;

export interface ClusterDeps extends HealthDeps {
  store: Store;
  clock: Clock;
  ids: Ids;
  log: Log;
  keyring: Pick<Keyring, "rotate" | "refresh" | "rotated">;
  keys: Pick<Keys, "rekey" | "forget">;
  tenancy: Pick<Tenancy, "shareOrg">;
  /** Whether there is a platform user; blocks the first one until the transaction ends. */
  anyPlatformUser: (session: Session) => Promise<boolean>;
  /** Asks every node, this one included, to use the new secret; answers the nodes that confirmed. */
  announce: (rotated: Rotated) => Promise<string[]>;
  /** Called for the rotation of a platform key, in its transaction. */
  recordRotated: (session: Session, keyId: string, caller: Caller) => Promise<void>;
}

/** The hint of a rotation to other nodes; it never has a secret. */
export type Rotated = { kind: "keyring" } | { kind: "api_key"; hash: string };

/** Kinds that affect every tenant of the installation, not only the caller's org. */
const installationKinds = ["jwt_secret", "platform_jwt_secret", "signing_key", "master_key"] as const;
type InstallationKind = (typeof installationKinds)[number];
const isInstallationKind = (kind: string): kind is InstallationKind =>
  (installationKinds as readonly string[]).includes(kind);

export function openCluster(deps: ClusterDeps) {
  const { store, clock, ids, log, keyring, keys } = deps;

  function requireKind(kind: string): void {
    if (!isInstallationKind(kind) && kind !== "api_key")
      throw invalid("kind", `must be one of ${[...installationKinds, "api_key"].join(", ")}`);
  }

  /**
   * Kinds that affect every tenant need a platform credential, for which the gate required
   * `platform:keys:manage`. An impersonating one has only the tenant's rights. While there is no platform
   * user, admins of the first org may do it.
   */
  async function requireInstallation(
    session: Session,
    kind: InstallationKind,
    caller: Caller,
  ): Promise<void> {
    if (caller.kind === "dev" || actsForPlatform(caller)) return;
    const isFirst = caller.kind !== "platform" && caller.orgId === defaultOrgId;
    if (!isFirst || (await deps.anyPlatformUser(session)))
      throw new Fault("permission_denied", `platform credential required to rotate the ${kind}`);
  }

  /** Runs in the rotation's transaction; answers the hint for the other nodes. */
  async function apply(session: Session, input: RotateInput, caller: Caller): Promise<Rotated> {
    if (isInstallationKind(input.kind)) {
      await keyring.rotate(session, input.kind, input.new_value, caller.id);
      return { kind: "keyring" };
    }
    if (!input.remote_key_id) throw invalid("remote_key_id", "required with kind api_key");
    await deps.tenancy.shareOrg(session, caller.orgId);
    const before = await keys.rekey(session, input.remote_key_id, caller.orgId, input.new_value);
    if (actsForPlatform(caller)) await deps.recordRotated(session, input.remote_key_id, caller);
    return { kind: "api_key", hash: before };
  }

  async function announce(rotated: Rotated): Promise<string[]> {
    try {
      return await deps.announce(rotated);
    } catch (error) {
      // The rotation is committed: nodes without the hint find it by themselves.
      log.warn("cluster.rotation_unconfirmed", { error });
      return [deps.nodeId];
    }
  }

  const replay = (row: RotationRow, requestHash: string): Rotation => {
    if (row.request_hash !== requestHash)
      throw new Fault("already_exists", "Idempotency-Key was used with another request", {
        field: "Idempotency-Key",
      });
    return { rotatedAt: row.rotated_at, confirmed: JSON.parse(row.confirmed) as string[], replayed: true };
  };

  return {
    /** Addresses, memory and loops of nodes are left out unless `detailed`. */
    health: (detailed: boolean) => clusterHealth(deps, detailed),

    async rotate(input: RotateInput, caller: Caller, idempotencyKey: string | undefined): Promise<Rotation> {
      requireKind(input.kind);
      const requestHash = hash(
        "sha256",
        JSON.stringify([input.kind, input.new_value, input.remote_key_id]),
        "hex",
      );
      const row: RotationRow = {
        id: ids.next("req"),
        org_id: caller.orgId,
        idempotency_key: idempotencyKey || null,
        request_hash: requestHash,
        kind: input.kind,
        rotated_at: clock.now(),
        actor_id: caller.id,
        confirmed: "[]",
      };
      const done = await store.write(async (session) => {
        if (isInstallationKind(input.kind)) await requireInstallation(session, input.kind, caller);
        if (await insertRotation(session, row)) return apply(session, input, caller);
        return replay((await findRotation(session, row.org_id, row.idempotency_key!))!, requestHash);
      });
      if ("replayed" in done) return done;
      if (done.kind === "keyring") await keyring.refresh();
      else keys.forget(done.hash);
      const confirmed = await announce(done);
      await store.write((session) => confirmRotation(session, row.id, confirmed));
      log.info("cluster.rotated", { kind: input.kind, by: caller.id, confirmed });
      return { rotatedAt: row.rotated_at, confirmed, replayed: false };
    },

    purge: (session: Session) => purgeRotations(session, clock.now() - idempotencyKeptMs),
  };
}
