import type { Keyring } from "../domain/access/keyring/service.ts";
import { ownersOfTables } from "../domain/state/projections/sql/rows.ts";
import { meterQueries } from "../domain/state/query/meters.ts";
import { queryOperations } from "../domain/state/query/operations.ts";
import { openQueries } from "../domain/state/query/service.ts";
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
