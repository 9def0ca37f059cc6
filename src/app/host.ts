import { openBus } from "../bus/open.ts";
import { shareEnvironment } from "../domain/access/tenancy/service.ts";
import { openListChanges } from "../domain/realtime/pubsub/changes.ts";
import { openFrames } from "../domain/realtime/pubsub/frames.ts";
import { type OpenWatch, openWatch } from "../edge/open-watch.ts";
import type { SystemClock } from "../kit/clock.ts";
import type { Closing, Draining } from "../kit/closing.ts";
import type { LoopOptions } from "../kit/loop.ts";
import { type KeyPair, secretFiles } from "../kit/secret-files.ts";
import { version } from "../kit/version.ts";
import { clockUncertaintyMsMax, type TimeBase, timeBase } from "../nodes/time-base.ts";
import type { Config } from "../settings/settings.ts";
import { installationOf, type OpenStoreOptions, openStore } from "../store/open.ts";
import { Primary } from "../store/postgres-primary.ts";
import type { Basics, Store } from "../store/store.ts";
import { type Troubles, watchTroubles } from "../store/troubles.ts";
import type { Host } from "./part.ts";

export interface HostNeeds extends Basics<"ids" | "log" | "nodeId"> {
  config: Config;
  clock: SystemClock;
  draining: Draining;
  closers: Pick<Closing, "push">;
  store: Pick<OpenStoreOptions, "migrations" | "limits" | "around"> | undefined;
}

export interface ServerHost extends Host {
  clock: SystemClock;
  watch: OpenWatch;
  time: TimeBase;
  troubles: Troubles;
  /** `ins_…`, as the store has it. */
  installation: string;
  /** Certificate and key of both ports. */
  tls: KeyPair | undefined;
}

type StoreNeeds = Pick<HostNeeds, "config" | "clock" | "log" | "store"> &
  Pick<OpenStoreOptions, "tls" | "metrics" | "primary">;

function openStoreOf({ config, store, ...rest }: StoreNeeds): Promise<Store> {
  const { databaseUrl, db: file, poolSize } = config;
  return openStore({
    ...rest,
    ...{ databaseUrl, file },
    // Half of the connections are for flushes, so that slow writes cannot keep them waiting.
    hotPoolSize: Math.ceil(poolSize / 2),
    poolSize: Math.max(1, Math.floor(poolSize / 2)),
    ...store,
  });
}

/**
 * What every part stands on, low to high: metrics and traces, files with secrets, the store, its time, the
 * bus.
 */
export async function openHost(needs: HostNeeds): Promise<ServerHost> {
  const { config, clock, ids, nodeId, draining, closers } = needs;
  const startedAt = clock.now();
  const watch = await openWatch({ clock, log: needs.log, version, nodeId, config });
  closers.push("watch", () => watch.close());
  const { metrics } = watch;
  const { tls, databaseTls, natsAccess } = secretFiles(config);

  const { databaseUrl } = config;
  const primary =
    databaseUrl === undefined ? undefined : new Primary({ url: databaseUrl, clock, log: needs.log });
  const troubles = watchTroubles({
    ...{ clock, log: needs.log },
    ...(primary && { attempts: () => primary.attempts }),
  });
  const { log } = troubles;
  const store = await openStoreOf({
    ...{ config, clock, log, metrics, primary, tls: databaseTls, store: needs.store },
  });
  closers.push("store", () => store.close());
  const installation = await installationOf(store, ids);
  const labels = ["version", "engine"] as const;
  metrics.gauge({ name: "svc_build_info", help: "What runs here.", labels })(version, store.engine).set(1);
  const time = timeBase(store, clock, metrics);
  await time.sample();

  const facts = () => ({ version, startedAt });
  const bus = await openBus({ clock, log, nodeId, url: config.natsUrl, facts, metrics, ...natsAccess });
  closers.push("bus", () => bus.close());
  const frames = openFrames({ bus, clock, log, self: ids.uuid() });
  return {
    ...{ config, clock, ids, log, watch, store, databaseTls, bus, nodeId, time, tls, shareEnvironment },
    ...{ primary, troubles, installation },
    frames,
    changes: openListChanges({ clock, frames }),
    knowsTime: () => time.uncertaintyMs() <= clockUncertaintyMsMax,
    isDraining: () => draining.active,
  };
}

export const timeLoop = (time: TimeBase): LoopOptions => ({
  name: "cluster.time",
  about: "Measures how far this node's clock is from the database's.",
  everyMs: 5_000,
  tick: time.sampleOnce,
});
