import { stackless } from "../wire/errors.ts";
import type { AskedWait, CompletedStep, ReportedStep } from "../wire/wire.ts";
import type { TestStep } from "./test-plan.ts";
import { asJson } from "./testing-match.ts";
import { TestWaits, type TestWaitsOptions } from "./testing-waits.ts";

/** The server of one test run: its stored steps, its virtual clock, and what ends the waits of the run. */
export class TestServer {
  readonly #waits: TestWaits;
  readonly #steps = new Map<string, TestStep>();
  /** Ids of steps, in the order in which they ended last. */
  readonly #ended = new Set<string>();
  /** When failed steps are tried again, by their ids. */
  readonly #retryAt = new Map<string, number>();
  nowMs: number;
  /** The attempt of the run that is going on, from 1. */
  attempt = 1;

  constructor(options: TestWaitsOptions) {
    this.#waits = new TestWaits(options);
    this.nowMs = options.startMs;
  }

  steps(): TestStep[] {
    return [...this.#steps.values()].map((step) =>
      step.error ? { ...step, error: stackless(step.error) } : step,
    );
  }

  memo(stepId: string): CompletedStep | undefined {
    const step = this.#steps.get(stepId);
    if (!step) return undefined;
    const { id, name, output, status, error, tries } = step;
    const tried = tries && { tries, max_tries: step.maxTries, retry_in_ms: this.#dueInMs(id) };
    return {
      step_id: id,
      name,
      output: asJson(output),
      status,
      ...(error && { error: { ...error, ...tried } }),
    };
  }

  /** The steps that a worker gets with the run. Failed ones rerun, unless of others or with own tries. */
  handedOut(): Pick<CompletedStep, "step_id" | "name">[] {
    return [...this.#ended].flatMap((stepId) => {
      const { id, name, type, status, tries } = this.#steps.get(stepId)!;
      return status === "failed" && tries === undefined && (type === "invoke" || type === "compensate")
        ? []
        : { step_id: id, name };
    });
  }

  storeReported({ id, name, type, status, output, error, compensation_for, ...own }: ReportedStep): void {
    const { tries, max_tries: maxTries, retry_in_ms: dueInMs = 0 } = own;
    if (tries !== undefined) this.#retryAt.set(id, this.nowMs + dueInMs);
    this.#store({
      id,
      name,
      type,
      status,
      output: output ?? null,
      ...(error && { error }),
      ...(compensation_for !== undefined && { compensationFor: compensation_for }),
      ...(tries !== undefined && { tries }),
      ...(maxTries !== undefined && { maxTries }),
    });
  }

  #dueInMs(stepId: string): number {
    return Math.max(0, (this.#retryAt.get(stepId) ?? 0) - this.nowMs);
  }

  /** Ends what ends first of all that the handler waits for. */
  async settle(all: readonly AskedWait[]): Promise<void> {
    const { atMs, ended } = await this.#waits.next(all, this.nowMs);
    this.nowMs = atMs;
    for (const step of ended) this.#store(step);
  }

  #store(step: Omit<TestStep, "attempt">): void {
    if (this.#steps.get(step.id)?.status === "failed") this.#ended.delete(step.id);
    this.#ended.add(step.id);
    this.#steps.set(step.id, { ...step, attempt: this.attempt });
  }
}
