import type { SvcFunction } from "../steps/svc-function.ts";
import type { Condition } from "../wire/wire.ts";
import type { TestPlan } from "./test-plan.ts";

/** The names that a test run used, with its children's: a name in the test that matches none is a mistake. */
export class TestNames {
  readonly #steps = new Set<string>();
  readonly #invokes = new Set<string>();
  readonly #tools = new Set<string>();
  readonly #events = new Set<string>();
  readonly #signals = new Set<string>();
  readonly #streams = new Set<string>();
  readonly #keys = new Set<string>();
  readonly #secrets = new Set<string>();
  #stepCount = 0;

  function({ definition }: SvcFunction): void {
    for (const name of definition.secrets ?? []) this.#secrets.add(name);
  }

  step(name: string): void {
    this.#steps.add(name);
  }

  /** A step was executed and reported. */
  reported(): number {
    return ++this.#stepCount;
  }

  invoke(id: string): void {
    this.#invokes.add(id);
  }

  tool(name: string): void {
    this.#tools.add(name);
  }

  wait(event: string): void {
    this.#events.add(event);
  }

  signal(name: string): void {
    this.#signals.add(name);
  }

  /** A wait for something else than an event. */
  state(condition: Exclude<Condition, { event: string }>): void {
    if ("stream" in condition) this.#streams.add(condition.stream.entity_id);
    if ("key" in condition) this.#keys.add(`${condition.key.bucket}/${condition.key.key}`);
  }

  /** Throws TypeError that lists the names of the test which match nothing, and those that there are. */
  requireMatched({
    steps,
    failures,
    crashes,
    invokes,
    tools,
    deliveries,
    signals,
    answers,
    states,
    ...plan
  }: TestPlan): void {
    const lacking = [
      ...unmatched("mockStep", steps.keys(), this.#steps),
      ...unmatched(
        "failStep",
        failures.map(({ name }) => name),
        this.#steps,
      ),
      ...crashes.flatMap(({ step }) => this.#unmatchedCrash(step)),
      ...unmatched("mockInvoke", invokes.keys(), this.#invokes),
      ...unmatched("mockTool", tools.keys(), this.#tools),
      ...unmatched(
        "deliver",
        deliveries.map(({ event }) => event),
        this.#events,
      ),
      ...unmatched(
        "signal",
        signals.map(({ name }) => name),
        this.#signals,
      ),
      ...unmatched("on", answers.keys(), this.#events),
      ...unmatched(
        "stream",
        states.streams.map(({ entityId }) => entityId),
        this.#streams,
      ),
      ...unmatched(
        "key",
        states.keys.map(({ bucket, key }) => `${bucket}/${key}`),
        this.#keys,
      ),
      ...unmatched("secrets", Object.keys(plan.secrets), this.#secrets),
    ];
    if (lacking.length > 0)
      throw new TypeError(`function ${plan.target.id}: ${[...new Set(lacking)].join("; ")}`);
  }

  #unmatchedCrash(step: string | number): string[] {
    if (step === "every") return [];
    if (typeof step === "string") return unmatched("crashAfter", [step], this.#steps);
    const isThere = Number.isInteger(step) && step >= 1 && step <= this.#stepCount;
    return isThere ? [] : [`crashAfter(${step}) matches nothing: ${this.#stepCount} steps were executed`];
  }
}

function unmatched(method: string, given: Iterable<string>, there: ReadonlySet<string>): string[] {
  const list = [...there].join(", ") || "none";
  return [...given].flatMap((name) =>
    there.has(name) ? [] : [`${method}("${name}") matches nothing that the run came by (there: ${list})`],
  );
}
