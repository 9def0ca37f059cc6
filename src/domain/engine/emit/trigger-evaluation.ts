import { breather } from "../../../kit/breather.ts";
import { CelBudget } from "../../../kit/cel/cel.ts";
import type { Clock, Instant } from "../../../kit/clock.ts";
import { Fault, tryAgain } from "../../../kit/fault.ts";
import type { EventSchemas, SchemaMark } from "../../log/schemas/service.ts";
import type { Definitions, DefinitionsCache, Trigger } from "../functions/definition.ts";
import { flowValue } from "../functions/rules.ts";
import type { FlowValue } from "../functions/start-options.ts";
import { cronSource, type EventDraft } from "./rules.ts";

/**
 * Cost limit of all triggers of one emit, in items of `kit/cel/bounds.ts`, and what each event of a batch
 * adds.
 */
export const emitItemsMax = 100_000;
const itemsAnEvent = 5_000;
/** Emits of one environment that may wait while earlier ones are evaluated. */
const waitingMax = 1_000;
/** Definitions may change while an emit is on its way; more often than this in a row something is wrong. */
const triesMax = 10;

/** What trigger expressions say of one event, by their text, and the id and time they were evaluated with. */
export interface Judged {
  readonly id: string;
  /** The time of the first evaluation. */
  at: Instant | undefined;
  /** Undefined until an expression was evaluated: most events meet none. */
  verdicts: Map<string, boolean> | undefined;
  /** What expressions of options gave for the functions that it starts; undefined until one was evaluated. */
  values?: Map<string, FlowValue> | undefined;
  /** What the schema of the event's name says of it; undefined for a name that has none. */
  schema?: SchemaMark | undefined;
  /** The refusal that its schema asks for. */
  refused?: Fault | undefined;
}

/** The part of a unit that triggers are evaluated for. */
export interface Judgeable {
  origin: { environmentId: string; source: string; isAccepted?: true };
  drafts: readonly EventDraft[];
  /** An invoke evaluates no triggers. */
  target?: unknown;
  /** For each draft. */
  judged: readonly Judged[];
  /** The definitions whose triggers were all evaluated. */
  judgedBy: Definitions | undefined;
}

/** The functions changed after the evaluation: `through` evaluates the new triggers and submits again. */
export const unjudged = tryAgain("unavailable", "the functions of the environment are changing, try again");

/**
 * Triggers that decide whether an event starts their function, still to be evaluated; one match is enough for
 * a function.
 */
function* unevaluated(definitions: Definitions, draft: EventDraft, judged: Judged): Generator<Trigger> {
  const started = new Set<string>();
  for (const trigger of definitions.triggersOf(draft.name)) {
    const { expression } = trigger;
    const { id } = trigger.record.definition;
    if (started.has(id)) continue;
    if (expression !== undefined && !judged.verdicts?.has(expression)) yield trigger;
    if (expression === undefined || judged.verdicts?.get(expression)) started.add(id);
  }
}

/** Computes the options of the functions that the event starts, once its triggers were evaluated. */
function* flowQuestions(
  definitions: Definitions,
  { name, value }: EventDraft,
  judged: Judged,
  budget: CelBudget,
): Generator<() => void> {
  for (const { record, expression, flowExpressions } of definitions.triggersOf(name)) {
    if (expression !== undefined && !judged.verdicts?.get(expression)) continue;
    for (const option of flowExpressions)
      yield () => {
        judged.values ??= new Map();
        judged.values.set(option, flowValue(option, { id: judged.id, name, value }, budget));
        if (budget.isUsedUp) throw tooMuch(name, record.definition.id);
      };
  }
}

/** The schemas that the events must keep; undefined when no name of them has one. Slots come in any case. */
function schemasOf(
  { origin, drafts, target }: Judgeable,
  { schemas }: Definitions,
): EventSchemas | undefined {
  if (schemas === undefined || target || origin.source === cronSource) return undefined;
  return drafts.some(({ name }) => schemas.governs(name)) ? schemas : undefined;
}

/** Whether these events need no evaluation, as is usual: no trigger has an expression, no name a schema. */
function needsNothing(unit: Judgeable, definitions: Definitions): boolean {
  if (schemasOf(unit, definitions)) return false;
  for (const { name } of unit.drafts)
    for (const { expression, flowExpressions } of definitions.triggersOf(name))
      if (expression !== undefined || flowExpressions.length > 0) return false;
  return true;
}

function isJudged(unit: Judgeable, definitions: Definitions): boolean {
  const { drafts, judged, judgedBy, target } = unit;
  if (target || judgedBy === definitions) return true;
  // What other schemas have said of it does not count.
  if (schemasOf(unit, definitions) || judged.some(({ schema }) => schema)) return false;
  return drafts.every((draft, at) => unevaluated(definitions, draft, judged[at]!).next().done);
}

/**
 * Units that were evaluated by the known definitions. One that was not holds back the later units of its
 * environment.
 */
export function judgedOf<Unit extends Judgeable>(
  units: readonly Unit[],
  known: ReadonlyMap<string, Definitions>,
): Unit[] {
  const held = new Set<string>();
  return units.filter((unit) => {
    const { environmentId } = unit.origin;
    const definitions = known.get(environmentId);
    if (definitions && !held.has(environmentId) && isJudged(unit, definitions)) return true;
    held.add(environmentId);
    return false;
  });
}

export interface TriggeringDeps {
  clock: Pick<Clock, "now" | "elapsed" | "sleep">;
  definitions: Pick<DefinitionsCache, "of" | "known">;
}

export function openTriggering({ clock, definitions }: TriggeringDeps) {
  const judging = new Map<string, { last: Promise<void>; waiting: number }>();

  /** Evaluates the triggers of a unit; undefined when it took no pause. */
  function judge(unit: Judgeable, known: Definitions): Promise<void> | undefined {
    const { environmentId, source } = unit.origin;
    const budget = new CelBudget(emitItemsMax + itemsAnEvent * unit.drafts.length);
    let dearest = { functionId: "", items: -1 };
    const breathe = breather(clock, environmentId);

    const schemas = schemasOf(unit, known);

    function* questions(): Generator<() => void> {
      for (const [at, draft] of unit.drafts.entries()) {
        const one = unit.judged[at]!;
        const verdict = schemas?.governs(draft.name) ? yield* schemas.verdictOf(draft) : undefined;
        one.schema = verdict?.mark;
        one.refused = unit.origin.isAccepted ? undefined : verdict?.refused;
        if (one.refused) return;
      }
      for (const [at, draft] of unit.drafts.entries()) {
        const one = unit.judged[at]!;
        const { name, version, value: data, metadataValue: metadata } = draft;
        one.at ??= clock.now();
        const event = { id: one.id, name, data, metadata, version, source, timestamp: one.at };
        for (const trigger of unevaluated(known, draft, one))
          yield () => {
            const before = budget.left;
            one.verdicts ??= new Map();
            one.verdicts.set(trigger.expression!, trigger.matches(event, budget));
            const items = before - budget.left;
            if (items > dearest.items) dearest = { functionId: trigger.record.definition.id, items };
            if (budget.isUsedUp) throw tooMuch(name, dearest.functionId);
          };
        yield* flowQuestions(known, draft, one, budget);
      }
    }

    const evaluations = questions();
    const goOn = async (first: Promise<void>, ask: () => void): Promise<void> => {
      await first;
      ask();
      for (const next of evaluations) {
        await breathe();
        next();
      }
      unit.judgedBy = known;
    };
    for (let next = evaluations.next(); !next.done; next = evaluations.next()) {
      const pause = breathe();
      if (pause) return goOn(pause, next.value);
      next.value();
    }
    unit.judgedBy = known;
    return undefined;
  }

  /** Runs the work after that of earlier units of the environment. */
  function inTurn(environmentId: string, work: () => Promise<void> | undefined): Promise<void> | undefined {
    const before = judging.get(environmentId);
    if (before && before.waiting >= waitingMax)
      throw tryAgain("resource_exhausted", "too many events wait for the triggers of their environment");
    const done = before ? before.last.then(work) : work();
    if (!done) return undefined;
    const mine = { last: done.catch(() => {}), waiting: (before?.waiting ?? 0) + 1 };
    judging.set(environmentId, mine);
    void mine.last.then(() => {
      const now = judging.get(environmentId);
      if (now === mine) judging.delete(environmentId);
      else if (now) now.waiting--;
    });
    return done;
  }

  async function again<Unit extends Judgeable, Result>(
    unit: Unit,
    submit: (unit: Unit) => Promise<Result>,
  ): Promise<Result> {
    const { environmentId } = unit.origin;
    for (let tries = 1; ; tries++) {
      const known = await definitions.of(environmentId);
      await inTurn(environmentId, () => judge(unit, known));
      try {
        return await submit(unit);
      } catch (error) {
        if (error !== unjudged || tries >= triesMax) throw error;
      }
    }
  }

  /** Before the first submit; undefined when the unit need not wait. */
  function beforehand(unit: Judgeable): Promise<void> | undefined {
    const { environmentId } = unit.origin;
    const isBusy = judging.has(environmentId);
    // Unknown definitions are loaded by the flush, which then answers `unjudged`.
    const known = definitions.known(environmentId);
    if (known && !isBusy && (unit.target || needsNothing(unit, known))) {
      unit.judgedBy = known;
      return undefined;
    }
    if (!known && !isBusy) return undefined;
    return inTurn(environmentId, () => (known && !unit.target ? judge(unit, known) : undefined));
  }

  return {
    /**
     * Evaluates the triggers of these events and submits the unit with the verdicts. It computes in bursts,
     * and one emit of an environment after the other. Rejects with `resource_exhausted`, naming the costliest
     * function, when the triggers exceed the cost limit; nothing is written then.
     */
    through<Unit extends Judgeable, Result>(unit: Unit, submit: (unit: Unit) => Promise<Result>) {
      const orAgain = (error: unknown) => {
        if (error !== unjudged) throw error;
        return again(unit, submit);
      };
      const pause = beforehand(unit);
      return (pause ? pause.then(() => submit(unit)) : submit(unit)).catch(orAgain);
    },
  };
}

const tooMuch = (name: string, functionId: string): Fault =>
  new Fault(
    "resource_exhausted",
    `expression cost limit exceeded: the triggers of event "${name.slice(0, 80)}" read more than ${emitItemsMax} items, function ${functionId}'s most of them`,
    { code: "LIMIT_EXCEEDED" },
  );
