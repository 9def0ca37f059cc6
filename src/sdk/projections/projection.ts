import type { EventReader } from "../steps/svc-function.ts";
import { withUnits } from "../wire/duration.ts";
import type { EventMap } from "../wire/types.ts";
import type {
  CreateProjection,
  EffectContext,
  ProjectedEvent,
  ProjectionWork,
  SvcProjection,
} from "./projection-types.ts";

const batchSizeDefault = 1_000;
const batchSizeMax = 1_000;
const gatherMsDefault = 20;
const statesDefault = 10_000;
const retryDefault = { maxAttempts: 3, initialDelayMs: 100 };
const oldNames = { gatherMs: "gather", retry: { initialDelayMs: "delay" } } as const;

/** All options together, as they come without their types. */
interface GivenOptions {
  name: string;
  version?: number;
  partitionKey?: string;
  rebuild?: SvcProjection["rebuild"];
  batchSize?: number;
  gatherMs?: number;
  retry?: Partial<SvcProjection["retry"]>;
  events?: readonly string[];
  handlers?: Readonly<Record<string, (...given: never[]) => unknown>>;
  initialState?: unknown;
  reduce?: (...given: never[]) => unknown;
  statesMax?: number;
  handle?: (...given: never[]) => unknown;
  concurrency?: number;
  recording?: boolean;
  tableSql?: string;
  statements?: Readonly<Record<string, string>>;
  description?: string;
}

/**
 * A read model. With `initialState` the server keeps its states, with `tableSql` it folds events into a
 * table; else its handlers have effects of their own. Pass it to `createWorker`. The `createProjection` of a
 * client or of `defineEvents` is typed by their events. Throws TypeError for options that make no sense.
 */
export const createProjection: CreateProjection<EventMap> = (given: object) =>
  projectionOf(given as GivenOptions) as never;

/** With the rules of a registry, if it has any. */
export const createProjectionOf = <Events extends EventMap>(
  registry: { readonly createProjection: CreateProjection<Events> } | undefined,
): CreateProjection<Events> => registry?.createProjection ?? (createProjection as never);

export function projectionOf(options: GivenOptions, reader?: EventReader): SvcProjection {
  const given = withUnits(`projection ${options.name}`, options, oldNames);
  const { name, version = 1, batchSize = batchSizeDefault, rebuild = "never" } = given;
  if (!name) throw new TypeError("a projection needs a name");
  if (!Number.isSafeInteger(version) || version < 1)
    throw new TypeError(`version of projection ${name}: a whole number from 1`);
  if (!Number.isSafeInteger(batchSize) || batchSize < 1 || batchSize > batchSizeMax)
    throw new TypeError(`batchSize of projection ${name}: from 1 to ${batchSizeMax}`);
  if (!["never", "in_place", "side_by_side"].includes(rebuild))
    throw new TypeError(`rebuild of projection ${name}: never, in_place or side_by_side`);
  const events = [...(given.events ?? Object.keys(given.statements ?? given.handlers ?? {}))];
  if (events.length === 0) throw new TypeError(`projection ${name} needs events, or handlers by event name`);
  return {
    name,
    events,
    version,
    partitionKey: given.partitionKey ?? "",
    rebuild,
    batchSize,
    gatherMs: given.gatherMs ?? gatherMsDefault,
    retry: { ...retryDefault, ...given.retry },
    recording: given.recording === true,
    work: workOf(given),
    ...(reader && { reader }),
  };
}

function workOf(given: GivenOptions): ProjectionWork {
  const { name, initialState, tableSql, statements = {}, description = "", handlers = {} } = given;
  if (tableSql !== undefined) return { mode: "sql", tableSql, statements: { ...statements }, description };
  const byName = new Map(Object.entries(handlers));
  const isManaged = initialState !== undefined;
  const rest = isManaged ? given.reduce : given.handle;
  if (byName.size === 0 && !rest)
    throw new TypeError(
      `projection ${name} needs handlers by event name, or ${isManaged ? "reduce" : "handle"}`,
    );
  /** An event without a handler changes nothing. */
  const workOn = (event: ProjectedEvent) => (byName.get(event.name) ?? rest) as AnyHandler | undefined;
  if (!isManaged)
    return {
      mode: "external",
      handle: (event: ProjectedEvent, context: EffectContext) => workOn(event)?.(event, context),
      concurrency: given.concurrency ?? 1,
    };
  return {
    mode: "managed",
    initial:
      typeof initialState === "function"
        ? (initialState as (partition: string) => unknown)
        : () => structuredClone(initialState),
    fold: (state: unknown, event: ProjectedEvent) => workOn(event)?.(state, event),
    statesMax: given.statesMax ?? statesDefault,
  };
}

type AnyHandler = (first: unknown, second: unknown) => unknown;
