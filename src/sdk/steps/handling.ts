import type { Logger } from "../wire/types.ts";
import { type Course, open } from "./course.ts";
import type { Deviations } from "./deviations.ts";
import type { Scopes } from "./scope.ts";
import type { ExecutionHost, StepUse } from "./step-host.ts";

export interface HandlingParts {
  runId: string;
  host: ExecutionHost;
  scopes: Scopes;
  course: Course;
  deviations: Deviations | undefined;
  log: Logger;
  isStored(stepId: string): boolean;
}

/** The handler of one execution: whether it continues, and what may begin in it. */
export class Handling {
  readonly #parts: HandlingParts;
  #phase: "going" | "returned" | "waits" | "undoing" = "going";
  #halted: { reason: unknown } | undefined;
  #isTold = false;
  #cutting: AbortController | undefined;

  constructor(parts: HandlingParts) {
    this.#parts = parts;
  }

  get isUndoing(): boolean {
    return this.#phase === "undoing";
  }

  get isOver(): boolean {
    return this.#phase === "returned" || this.#phase === "waits";
  }

  /** False for another's job or an ended run: an error that the handler misses would end the process. */
  isHeld(): boolean {
    const { host, course } = this.#parts;
    try {
      host.requireHeld();
      return true;
    } catch (reason) {
      if (this.isUndoing) throw reason;
      this.#halted ??= { reason };
      course.halt();
      return false;
    }
  }

  /** Whether a call comes too late. A handler that returned still gets what is stored, to show its way. */
  isLate({ name, stepId }: StepUse): boolean {
    const { scopes, deviations, log, runId, isStored } = this.#parts;
    if (this.#phase === "going" || (this.isUndoing && scopes.isUndoing())) return false;
    if (this.#phase === "returned") {
      if (isStored(stepId)) return false;
      deviations?.leftOver();
    }
    // Its caller may await nothing, and would not learn of it.
    const when =
      this.#phase === "waits"
        ? "by work that is not a step, while its run had begun to wait"
        : "after its handler had returned: await every step";
    if (!this.#isTold) log.warn(`step ${name} was called ${when}`, { runId });
    this.#isTold = true;
    return true;
  }

  /** What the SDK itself computes for the handler. */
  async during<Result>(work: Promise<Result>): Promise<Result> {
    const { course } = this.#parts;
    const own = course.begin(false);
    try {
      return await work;
    } catch (error) {
      if (this.isHeld()) throw error;
      return open();
    } finally {
      course.end(own);
    }
  }

  /** As that of the host, and raised when the handler has ended. */
  signal(): AbortSignal {
    if (this.#cutting) return this.#cutting.signal;
    const outer = this.#parts.host.signal();
    const own = new AbortController();
    this.#cutting = own;
    if (outer.aborted) own.abort(outer.reason);
    else outer.addEventListener("abort", () => own.abort(outer.reason), { once: true });
    return own.signal;
  }

  /** Follows the handler to its end and answers its result; undefined when it waits. Throws what it threw. */
  async follow(handler: () => Promise<unknown>): Promise<{ output: unknown } | undefined> {
    const { course } = this.#parts;
    try {
      const returned = handler().then((output) => ({ output }));
      const ended = (await Promise.race([returned, course.over])) || undefined;
      this.#phase = ended ? "returned" : "waits";
      if (!ended && this.#halted) throw this.#halted.reason;
      return ended;
    } catch (error) {
      if (!this.isOver) this.#phase = "returned";
      throw error;
    } finally {
      const isUndoneLate = course.cut();
      this.#cutting?.abort(new Error("the handler has ended"));
      if (isUndoneLate) await course.whenResting();
    }
  }

  /** From here on nothing can be waited for: what the run did is undone. */
  undoes(): void {
    if (this.isUndoing) return;
    this.#phase = "undoing";
    this.#cutting = undefined;
    this.#parts.course.reopen();
  }
}
