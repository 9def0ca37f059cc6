import type { Clock } from "../../../kit/clock.ts";
import { Fault, missing } from "../../../kit/fault.ts";
import type { Ids } from "../../../kit/ids.ts";
import { ttlCache } from "../../../kit/ttl-cache.ts";
import type { Basics, Session, Store } from "../../../store/store.ts";
import type { Keyring } from "../../access/keyring/service.ts";
import { sourceKeptMs, sourcesCachedMax } from "./limits.ts";
import * as rows from "./rows.ts";
import { type SourceRow, sourceOfId } from "./rows.ts";
import type { VerifyConfig } from "./rules.ts";
import * as rules from "./rules.ts";
import type { NamedSecret } from "./verify.ts";

/** A source as requests meet it: with its secrets opened. */
export interface HeldSource {
  row: SourceRow;
  /** Undefined where nothing says where a signature stands. */
  config: VerifyConfig | undefined;
  secrets: (NamedSecret & { until: number })[];
}

/** What a secret of a source is sealed for: the sealed text opens in no other row. */
export const placeOf = ({ environment_id, id }: Pick<SourceRow, "environment_id" | "id">): string =>
  `webhook_source/${environment_id}/${id}`;

export const configIn = ({ verify_config }: SourceRow): VerifyConfig | undefined =>
  verify_config === null ? undefined : (JSON.parse(verify_config) as VerifyConfig);

/** The secrets of a row, the current one first. */
export async function secretsOf(
  row: SourceRow,
  keyring: Pick<Keyring, "unseal">,
): Promise<HeldSource["secrets"]> {
  const secrets: HeldSource["secrets"] = [];
  const open = (sealed: string) => keyring.unseal(placeOf(row), sealed);
  if (row.sealed !== null)
    secrets.push({ key: "current", secret: await open(row.sealed), until: Number.POSITIVE_INFINITY });
  if (row.prev_sealed !== null && row.prev_expires_at !== null)
    secrets.push({ key: "prev", secret: await open(row.prev_sealed), until: row.prev_expires_at });
  return secrets;
}

/** Sources by id, cached for `sourceKeptMs`. */
export const openHeldSources = (deps: { store: Store; clock: Clock; keyring: Pick<Keyring, "unseal"> }) =>
  ttlCache<HeldSource>({
    clock: deps.clock,
    keptMs: sourceKeptMs,
    entriesMax: sourcesCachedMax,
    async read(id) {
      const row = await sourceOfId(deps.store, id);
      return row && { row, config: configIn(row), secrets: await secretsOf(row, deps.keyring) };
    },
  });

export type { SourceRow } from "./rows.ts";

/** A source, with its token in the answers that make one. */
export interface ShownSource {
  row: rows.SourceRow;
  token?: string;
}

/** What became of a source; `received`: it was sent something. */
export interface SourceChange {
  environmentId: string;
  id: string;
  change: "created" | "updated" | "deleted" | "received";
}

export interface WebhookSourcesDeps extends Basics<"store" | "clock" | "ids"> {
  keyring: Pick<Keyring, "seal" | "unseal" | "writeSealed">;
  shareEnvironment: (session: Session, environmentId: string) => Promise<void>;
  /** Of secrets that are rotated without one. */
  graceMsDefault: number;
  /** Called after the commit: this node rereads the source. */
  onChanged: (change: SourceChange) => void;
}

/** What a caller believes `updated_at` to be; undefined for one who does not care. */
export type ExpectedTime = number | undefined;

const requireExpected = (row: rows.SourceRow, expected: ExpectedTime): void => {
  if (expected !== undefined && expected !== row.updated_at)
    throw new Fault("aborted", "expected_updated_at: the source was changed meanwhile, read it again", {
      field: "expected_updated_at",
    });
};

/** A new ingest token, and what is stored of it. */
export function newToken(ids: Pick<Ids, "secret">) {
  const token = rules.tokenStart + ids.secret(rules.tokenBytes);
  return { token, token_hash: rules.hashOfToken(token), token_prefix: rules.shownPrefixOf(token) };
}

/** Every change holds the row; no two of them have the same time, which callers compare. */
export const openChange = ({ clock, keyring, onChanged }: WebhookSourcesDeps) =>
  async function change(
    { environmentId, id, expected }: { environmentId: string; id: string; expected: ExpectedTime },
    next: (row: rows.SourceRow) => rows.SourceRow | Promise<rows.SourceRow>,
  ): Promise<ShownSource> {
    const row = await keyring.writeSealed(async (session) => {
      const before = await rows.holdSource(session, environmentId, id);
      if (!before) throw missing("webhook source", id);
      requireExpected(before, expected);
      const after = await next(before);
      const result = { ...after, updated_at: Math.max(clock.now(), before.updated_at + 1) };
      await rows.updateSource(session, result);
      return { result, sealed: [result.sealed, result.prev_sealed].filter((one) => one !== null) };
    });
    onChanged({ environmentId, id, change: "updated" });
    return { row };
  };

/** Which secrets and tokens a source takes. */
export function openSourceSecrets(deps: WebhookSourcesDeps) {
  const { clock, ids, keyring } = deps;
  const change = openChange(deps);

  /** The current secret becomes the previous one, for as long as its grace is. */
  const retired = (row: rows.SourceRow, graceSeconds: number | undefined) => {
    const graceMs =
      graceSeconds === undefined ? deps.graceMsDefault : rules.requireGrace(graceSeconds) * 1_000;
    const keeps = row.sealed !== null && graceMs > 0;
    return {
      prev_sealed: keeps ? row.sealed : null,
      prev_expires_at: keeps ? clock.now() + graceMs : null,
    };
  };

  return {
    rotateSecret: (
      environmentId: string,
      id: string,
      input: { secret: string; graceSeconds: number | undefined; expected: ExpectedTime },
    ) =>
      change({ environmentId, id, expected: input.expected }, (before) => {
        const secret = rules.requireSecret(input.secret, configIn(before));
        return {
          ...before,
          ...retired(before, input.graceSeconds),
          sealed: keyring.seal(placeOf(before), secret),
        };
      }),

    expireSecret: (environmentId: string, id: string, expected: ExpectedTime) =>
      change({ environmentId, id, expected }, (before) => ({
        ...before,
        prev_sealed: null,
        prev_expires_at: null,
      })),

    disableVerification: (
      environmentId: string,
      id: string,
      input: { graceSeconds: number | undefined; expected: ExpectedTime },
    ) =>
      change({ environmentId, id, expected: input.expected }, (before) => ({
        ...before,
        ...retired(before, input.graceSeconds),
        sealed: null,
      })),

    async rotateToken(environmentId: string, id: string, expected: ExpectedTime): Promise<ShownSource> {
      const { token, ...stored } = newToken(ids);
      const changed = await change({ environmentId, id, expected }, (before) => ({ ...before, ...stored }));
      return { ...changed, token };
    },

    /** Seals all secrets again, in the transaction that rotates the master key. */
    async reseal(session: Session, again: (place: string, sealed: string) => string): Promise<void> {
      for (const row of await rows.sealedSources(session)) {
        const resealed = (sealed: string | null) => (sealed === null ? null : again(placeOf(row), sealed));
        await rows.resealSource(session, {
          ...row,
          sealed: resealed(row.sealed),
          prev_sealed: resealed(row.prev_sealed),
        });
      }
    },
  };
}
