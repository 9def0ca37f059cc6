import type { Clock } from "../../../kit/clock.ts";
import { ttlCache } from "../../../kit/ttl-cache.ts";
import type { Store } from "../../../store/store.ts";
import type { Keyring } from "../../access/keyring/service.ts";
import { sourceKeptMs, sourcesCachedMax } from "./limits.ts";
import type { VerifyConfig } from "./presets.ts";
import type { SourceRow } from "./rows.ts";
import { sourceOfId } from "./rows.ts";
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
