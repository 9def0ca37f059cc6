import { Type } from "@sinclair/typebox";
import type { Quotas } from "../domain/engine/quotas/service.ts";
import type { Runs } from "../domain/engine/runs/service.ts";
import { configJson, configOperations } from "../domain/state/config/operations.ts";
import { openConfigs } from "../domain/state/config/service.ts";
import { kvOperations } from "../domain/state/kv/operations.ts";
import { bucketCheck, openKv } from "../domain/state/kv/service.ts";
import type { Host, Part } from "./part.ts";

/** What a node tells the others: this bucket changed, or is gone. */
const Moved = Type.Object({ environmentId: Type.String(), bucketId: Type.String() });

/** What an environment keeps besides its logs: the key-value store, and config documents in it. */
export function openStatePart(
  host: Host,
  { runs, quotas }: { runs: Pick<Runs, "states">; quotas: Pick<Quotas, "requireRoom"> },
): Part {
  const { config, store, clock, ids, log, watch, shareEnvironment } = host;
  const moved = host.bus.channel("kv.moved", Moved);
  moved.listen(({ environmentId }) => runs.states.changed(environmentId));
  const kv = openKv({
    ...{ store, clock, ids, log, watch, moved, shareEnvironment, requireRoom: quotas.requireRoom },
    bodyBytesMax: config.requestBodyBytesMax,
  });
  const configs = openConfigs({
    kv,
    announce: (environmentId, state) =>
      host.frames.publish(environmentId, `system.config.${state.name}.updated`, configJson(state)),
  });
  return {
    operations: [...kvOperations(kv), ...configOperations(configs)],
    loops: [
      {
        name: "kv.watches",
        about: "Asks in one query which buckets that are watched here have changed without a hint.",
        everyMs: 1_000,
        tick: kv.lookOnce,
      },
    ],
    duties: [
      {
        duty: "retention",
        name: "kv.expire",
        about: "Deletes keys whose time is over, and what deleted buckets held, a slice a transaction.",
        everyMs: 60_000,
        tick: kv.expireOnce,
      },
    ],
    checks: [bucketCheck(store)],
    settled: kv.drain,
  };
}
