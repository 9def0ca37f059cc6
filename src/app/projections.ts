import { Type } from "@sinclair/typebox";
import { hasOthers } from "../bus/bus.ts";
import type { Keyring } from "../domain/access/keyring/service.ts";
import type { Feeds } from "../domain/log/core/feed.ts";
import { askedSince, openBatches } from "../domain/state/projections/batches.ts";
import { projectionChecks } from "../domain/state/projections/invariants.ts";
import { meterProjections, meterReaders } from "../domain/state/projections/meters.ts";
import { openNotices } from "../domain/state/projections/notices.ts";
import { projectionsOperations } from "../domain/state/projections/operations.ts";
import { rebuildOperations } from "../domain/state/projections/rebuilds/operations.ts";
import { openRebuilds } from "../domain/state/projections/rebuilds/service.ts";
import { leastUnfolded, type ProjectionKey } from "../domain/state/projections/rows.ts";
import { type Delivered, StoredDeliveries } from "../domain/state/projections/runners/deliveries.ts";
import { runnerOperations } from "../domain/state/projections/runners/operations.ts";
import { openRunners } from "../domain/state/projections/runners/service.ts";
import { openSignals } from "../domain/state/projections/runners/signals.ts";
import { openProjectionStreams } from "../domain/state/projections/runners/stream.ts";
import { openProjections } from "../domain/state/projections/service.ts";
import { SqlFolds } from "../domain/state/projections/sql/fold.ts";
import { sqlOperations } from "../domain/state/projections/sql/operations.ts";
import { ownersOfTables } from "../domain/state/projections/sql/rows.ts";
import { dropTableOf, openSqlProjections } from "../domain/state/projections/sql/service.ts";
import { openSweep } from "../domain/state/projections/sweep.ts";
import { waitOperations } from "../domain/state/projections/waits/operations.ts";
import { openWaits } from "../domain/state/projections/waits/service.ts";
import { queryOperations } from "../domain/state/query/operations.ts";
import { meterQueries, openQueries } from "../domain/state/query/service.ts";
import { openEnvironmentDatabases } from "../store/open-environments.ts";
import type { Host, PartShape } from "./part.ts";

export type QueryPart = ReturnType<typeof openQueryPart>;

/** SQL over what one environment holds. */
export function openQueryPart(host: Host, { keyring }: { keyring: Pick<Keyring, "seal" | "unseal"> }) {
  const { config, store, clock, log, ids, watch } = host;
  const databases = openEnvironmentDatabases({
    ...{ store, clock, log, primary: host.primary, file: config.db },
    tls: host.databaseTls,
    sealing: {
      shareEnvironment: host.shareEnvironment,
      secret: () => ids.secret(24),
      seal: (place, text) => keyring.seal(place, text),
      unseal: (place, sealed) => keyring.unseal(place, sealed),
    },
  });
  const onQuery = meterQueries(watch.metrics);
  const queries = openQueries({ clock, engine: store.engine, databases, onQuery });
  return {
    databases,
    queries,
    operations: queryOperations({ queries, ownersOf: (id, tables) => ownersOfTables(store, id, tables) }),
    duties: [
      {
        duty: "retention",
        name: "query.sweep",
        about: "Drops the schemas, roles and files of environments that are gone.",
        everyMs: 60_000,
        async tick() {
          await databases.sweep();
        },
      },
    ],
    close: () => databases.close(),
  } satisfies PartShape;
}

/** What a node tells the others: something of this projection changed. */
const Moved = Type.Object({ environmentId: Type.String(), name: Type.String() });

/** Read models that are folded from the event log, by runners outside. */
export function openProjectionsPart(
  host: Host,
  { feeds, databases, queries }: { feeds: Feeds } & Pick<QueryPart, "databases" | "queries">,
) {
  const { config, store, clock, ids, log, watch, bus, frames } = host;
  const signals = openSignals();
  const moved = bus.channel("projections.moved", Moved);
  const notices = openNotices({
    ...{ store, clock, log, frames, moved, signals },
    hasOthers: () => hasOthers(bus),
  });
  const onChanged = notices.changed;
  const batches = openBatches({ store, clock, log });
  const deliveries = new StoredDeliveries({ store, clock, batches });
  const meters = meterProjections({ store, clock, metrics: watch.metrics });
  const projections = openProjections({
    ...{ store, clock, ids, onChanged },
    async onTablesLeft(generations) {
      for (const key of generations)
        await dropTableOf(databases, key).catch((error) => log.warn("projections.drop_failed", { error }));
    },
  });
  const sqlProjections = openSqlProjections({ store, clock, ids, databases, queries, onChanged });
  const folds = new SqlFolds({
    ...{ store, clock, log, nodeId: host.nodeId, databases, batches, onChanged },
    onFolded: (count) => meters.folded.add(count),
  });
  const rebuilds = openRebuilds({ store, clock, ids, onChanged });
  const onDelivered = ({ held, events, advanced }: Delivered) => {
    meters.delivered.add(events.length);
    const { environment_id, name } = held;
    if (advanced?.hasMoved)
      onChanged({ key: { environment_id, name }, kind: advanced.isRebuilt ? "transition" : "move" });
  };
  const runners = openRunners({
    ...{ store, clock, feeds, signals, deliveries, onDelivered, pollHoldMs: config.pollHoldMs },
    onSaved(saved) {
      meters.saves.add();
      notices.saved(saved);
    },
  });
  const streams = openProjectionStreams({
    ...{ store, clock, ids, deliveries, onDelivered },
    listen: runners.listen,
  });
  const waits = openWaits({
    ...{ store, clock, log, signals },
    async passOver(key: ProjectionKey) {
      const hasMoved = await deliveries.passOver(key);
      if (hasMoved) onChanged({ key, kind: "move" });
      return hasMoved;
    },
  });
  meterReaders(watch, { waits: waits.size, streams: streams.size });
  return {
    waits,
    operations: [
      ...projectionsOperations(projections),
      ...runnerOperations(runners, streams),
      ...rebuildOperations(rebuilds),
      ...waitOperations(waits),
      ...sqlOperations(sqlProjections),
    ],
    loops: [
      {
        name: "projections.waits",
        about: "Looks in one query how far the projections are that callers here wait for.",
        everyMs: 1_000,
        tick: waits.lookOnce,
      },
      {
        name: "projections.fold",
        about: "Folds the projections of mode `sql` that have events behind their cursors.",
        everyMs: 250,
        tick: () => folds.foldOnce(),
      },
    ],
    duties: [
      {
        duty: "retention",
        name: "projections.sweep",
        about:
          "Deletes the states of projections that were deleted or rebuilt, and history that is too old, a slice a transaction.",
        everyMs: 60_000,
        tick: openSweep({ store, clock }, (key) => dropTableOf(databases, key)),
      },
    ],
    checks: projectionChecks(store),
    floorGuards: [(environmentId) => leastUnfolded(store, environmentId, askedSince(clock.now()))],
    async drain() {
      runners.drain();
      waits.drain();
    },
    disconnect: streams.drain,
    close: () => folds.release(),
  } satisfies PartShape;
}
