import type { EngineName } from "./engines.ts";
import type { Share } from "./lanes.ts";

// What waits for `test:night`. Every claim of it is held by day too, at the place that test/README.md names.
// Nothing here imports a package: run-all.ts reads it before any is installed.

export const nightVariable = "SVC_TEST_NIGHT";
/** For tests that try more of the same at night: more rounds, pages, themes. */
export const isNight = process.env[nightVariable] === "1";

/** By day so many of a list at each call, others the next time, so that many calls have had all; at night all at each call. */
export function inTurn<Item>(all: readonly Item[], byDay: number): () => readonly Item[] {
  let begin = 0;
  return () => {
    if (isNight || all.length <= byDay) return all;
    const some = Array.from({ length: byDay }, (_, at) => all[(begin + at) % all.length]!);
    begin = (begin + byDay) % all.length;
    return some;
  };
}

interface Left {
  why: string;
  /** Alone the half of this engine; without one, the whole file. */
  engine?: EngineName;
  files: readonly string[];
}

const operations = (names: string): string[] =>
  names
    .trim()
    .split(/\s+/)
    .map((name) => `operations/${name}`);

export const leftToNight: readonly Left[] = [
  {
    why: "clients, the command line, words and sign-in, in which the engines cannot differ: their libSQL half runs by day",
    engine: "postgres",
    files: [
      ...["contract/policy-doors", "contract/thing-doors"],
      ...operations(`
        agent-tools attribute-names cli cli-commands cli-mcp cli-tail client-words sdk sdk-groups sdk-kv
        sdk-projections sdk-sequences sdk-steps sdk-streams sdk-subscribe sdk-waits sign-in-link
        sign-in-sessions hostile-names frames sockets-join changed-frames moved-frames worker-stream-rough
        streams-protocols streams-rough schemas-rough webhook-input emit-shapes other-doors policy-doors
        bare-roles actors carried-roles credentials standing provenance push config joined-traces
        guarded-store intruder-groups intruder-live refused-reports oidc-hostile oidc-device issuers people
        policy-things worker-goodbyes sdk-branches sdk-errors sdk-given-values sdk-large-reports
        worker-stream unsent-jobs worker-leases workers large-pages made-under-deleted alert-messages crowds
        oidc platform push-moves rehearsal run-logs step-retries`),
    ],
  },
  {
    why: "what single operations do, by statements that both engines have: on libSQL by day, and the promises of each on PostgreSQL by the worlds",
    engine: "postgres",
    files: [
      ...["contract/loaded", "dashboard/sign-in"],
      ...operations(`
        told-waits webhooks functions environments wide-triggers kv-bounds open-children schemas
        groups-asked groups-members policies events audit-forgery deployments functions-changes tenancy
        invoke secrets capacity history topics finding-errors groups-given-up outbox functions-history
        sockets held-runs functions-list webhook-expired audit gone-environment steered-run functions-limits
        projection-changes authenticate platform-audit steering push-shares org-deletion sign-in-ends
        slow-neighbours debounce children waits-behind delayed-events sync-starts unread-functions
        webhook-turns event-lookups repair-turns mirror-slices mirror repaired-sagas sdk-lost-functions pins
        run-failed-event kv-watch flow-control batches`),
    ],
  },
  {
    why: "alerts, imports and webhooks that go out, in which the engines cannot differ but in their text: on PostgreSQL by day",
    engine: "libsql",
    files: operations("alerts import webhook-endpoints"),
  },
  {
    why: "how much starts read at once, by one text of SQL: on libSQL by day",
    engine: "postgres",
    files: ["operations/large-starts"],
  },
  {
    why: "what people see on the pages, in which the engines cannot differ: on libSQL by day",
    engine: "postgres",
    files: ["behind", "live", "runs", "shell", "steering"].map((name) => `dashboard/${name}`),
  },
  {
    why: "every write of the pages by keys, and by the mouse: every third scene by the mouse by day",
    files: ["access", "connections", "data", "functions", "platform", "runs"].map(
      (name) => `dashboard/actions-${name}`,
    ),
  },
  {
    why: "the scenes of all pages by keys, and at three nodes: every third by the mouse on PostgreSQL by day",
    engine: "libsql",
    files: ["dashboard/pages"],
  },
  {
    why: "the scenes of all pages at three nodes: every third at one by day",
    files: ["cluster/pages"],
  },
  {
    why: "plans beneath statistics of another table and a held snapshot: by day beneath what was counted and nothing at all",
    files: operations("hot-plans-counted hot-plans-held integrity-plans"),
  },
  {
    why: "large numbers, or bounds in milliseconds on a machine of their own, where others ask the same by day in smaller ones",
    files: [
      ...["cluster/recovery", "dashboard/intruder", "dashboard/many-runs"],
      ...["operations/connections", "operations/shares-cron"],
    ],
  },
  {
    why: "what needs tools that no user of svc has: a Go toolchain, promtool, three Nodes, HAProxy, generators of clients",
    files: [
      "cluster/haproxy",
      "unit/helm",
      "unit/observability",
      "contract/package",
      "contract/clients",
      "contract/frameworks",
    ],
  },
  {
    why: "worlds that need PgBouncer, nginx, HAProxy, faketime, locales, other versions of PostgreSQL, or rights of root: three worlds by day",
    files: ["conformance/worlds-by-night"],
  },
  {
    why: "the same promises as elsewhere by day, played once more in another form",
    files: [
      ...["cluster/failover-times", "cluster/standby", "dashboard/executable"],
      ...["fault/demo", "fault/disk-full-times", "fault/sagas"],
    ],
  },
];

/** Whether a share waits for the night. */
export const waitsForNight = ({ file, engine }: Share): boolean =>
  leftToNight.some(
    (left) =>
      (left.engine === undefined || left.engine === engine) &&
      left.files.some((name) => file === `test/${name}.test.ts`),
  );
