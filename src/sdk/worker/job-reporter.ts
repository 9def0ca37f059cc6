import { deviationFields } from "../steps/deviations.ts";
import { RunLines } from "../steps/run-lines.ts";
import type { ReportedAttributes } from "../wire/attributes.ts";
import { NonRetryableError, type ReportedError, SvcError } from "../wire/errors.ts";
import { after } from "../wire/retry.ts";
import type { Logger, StepDeviation, WrittenLine } from "../wire/types.ts";
import {
  type AskedWait,
  type Assignment,
  exchangeCharactersMax,
  openWaitsMax,
  type Yield,
} from "../wire/wire.ts";
import type { Courier, Sending } from "./courier.ts";
import { UnsentSteps } from "./unsent-steps.ts";

export interface JobReporterOptions {
  assignment: Assignment;
  courier: Pick<Courier, "send">;
  /** Milliseconds a finished step may wait to be sent with others; 0 = each is sent and awaited by itself. */
  checkpointMs: number;
  /** The function handles its failures. */
  onFailure: boolean;
  /** The job is no longer this worker's, or its run was ended. */
  onLost: (reason: SvcError) => void;
  /** The last report is on its way. */
  onLastReport: () => void;
  log: Logger;
}

/** The server refused a report for what it holds; sending it again would change nothing. */
const isRefusal = (error: SvcError) => error.status === 400 || error.status === 413 || error.status === 422;

const failureFields = (error: ReportedError) => `"status":"failed","error":${JSON.stringify(error)}`;

/** As many as fit one report, the first in any case; the rest is asked for when the run continues. */
export function awaitedText(all: readonly AskedWait[]): string {
  const texts: string[] = [];
  let characters = 0;
  for (const one of all.slice(0, openWaitsMax)) {
    const text = JSON.stringify(one);
    characters += text.length;
    if (texts.length > 0 && characters > exchangeCharactersMax) break;
    texts.push(text);
  }
  return `[${texts.join(",")}]`;
}

/** Lines that no other report takes along are sent after this time, in milliseconds. */
const linesMs = 1_000;

/** Tells the server of one job: its finished steps, and how the execution ended. */
export class JobReporter {
  readonly #options: JobReporterOptions;
  /** The fields with which every report of this job begins. */
  readonly #head: string;
  readonly #steps: UnsentSteps;
  #lost: SvcError | undefined;
  #refused: SvcError | undefined;
  /** Gives up the sending of what is recorded. */
  #cancel: (() => void) | undefined;
  #flushing: Promise<void> | undefined;
  /** The progress report that is not answered. */
  #progress: Sending | undefined;
  /** Characters of the last report, once it is known: it takes along the steps that fit it. */
  #lastCharacters: number | undefined;
  /** Compensations that the run has; undefined until there is one. */
  #undoCount: number | undefined;
  /** The most that it had in this execution. */
  #undoMost = 0;
  #undoIsKnown = false;
  #tellingUndo: Promise<void> | undefined;
  /** The run was ended, and what it has done is to be undone: the steps under way still count. */
  #ended: SvcError | undefined;
  /** Name of the step at which the handler was left. */
  #yieldedAt = "";
  /** Fields of the last report. */
  #deviations = "";
  /** What the run is found by, as far as the server does not know it. */
  #attributes: ReportedAttributes | undefined;

  readonly #lines: RunLines;
  #cancelLines: (() => void) | undefined;
  #linesAreDue = false;
  /** No report is made for lines alone: the server takes none, or the last one is on its way. */
  #goOnlyAlong = false;

  constructor(options: JobReporterOptions) {
    const { job_id, run_id, execution_seq, lease_token, step_sequence_base = 0 } = options.assignment;
    this.#options = options;
    this.#steps = new UnsentSteps(step_sequence_base);
    this.#lines = new RunLines(options.assignment.context?.secrets);
    this.#undoIsKnown = options.assignment.compensating !== undefined;
    // A run with nothing to undo says so: without the number the server counts unknown ones as not undone.
    if (this.#undoIsKnown) this.#undoCount = 0;
    this.#head =
      `{"job_id":${JSON.stringify(job_id)},"run_id":${JSON.stringify(run_id)},` +
      `"execution_seq":${execution_seq},"lease_token":${JSON.stringify(lease_token)},`;
  }

  /** Why no further step begins. */
  get over(): SvcError | undefined {
    return this.#lost ?? this.#ended;
  }

  /** Why nothing of this job is reported any more. */
  get lost(): SvcError | undefined {
    return this.#lost;
  }

  /** Throws when no further step may begin. */
  readonly requireHeld = (): void => {
    if (this.over) throw this.over;
    if (this.#refused) {
      const cause = this.#refused;
      throw new NonRetryableError(`the server refused a step: ${cause.message}`, { cause });
    }
  };

  /** Takes the JSON of a finished step. Resolves when the server has stored it, where each is waited for. */
  record(text: string): Promise<void> | undefined {
    if (this.#lost) throw this.#lost;
    const { checkpointMs } = this.#options;
    if (this.#ended) {
      this.#steps.add(text);
      return undefined;
    }
    if (checkpointMs !== 0) {
      this.#steps.add(text);
      if (!this.#flushing) this.#cancel ??= after(checkpointMs, () => void this.#flush());
      return undefined;
    }
    const stored = new Promise<void>((done) => this.#steps.add(text, done));
    void this.#flush();
    return stored.then(this.requireHeld);
  }

  /** Takes what the run is found by: the next report carries it. */
  set(attributes: ReportedAttributes): void {
    this.#attributes = { ...this.#attributes, ...attributes };
  }

  /** Takes a line of the handler: the next report carries it, and one comes within a second. */
  write(line: WrittenLine): void {
    this.#lines.add(line);
    if (this.#lines.count === 0 || this.over || this.#goOnlyAlong) return;
    this.#cancelLines ??= after(linesMs, () => {
      this.#cancelLines = undefined;
      this.#linesAreDue = this.#lines.count > 0;
      if (this.#linesAreDue) void this.#flush();
    });
  }

  #attributeFields(): string {
    return this.#attributes ? `"attributes":${JSON.stringify(this.#attributes)},` : "";
  }

  /**
   * Takes how many compensations there are; resolves once the server knows that there are some, and has the
   * steps before this one (`isKnown`: it does). With two steps that it does not have, a worker that dies
   * would leave the second unknown: the handler that undoes the run comes no further than the first.
   */
  undoes(count: number, isKnown: boolean): Promise<void> | undefined {
    this.#undoCount = count;
    this.#undoMost = Math.max(this.#undoMost, count);
    this.#undoIsKnown ||= isKnown;
    if (isKnown || (this.#undoIsKnown && this.#steps.count === 0)) return undefined;
    return this.#catchUp();
  }

  async #catchUp(): Promise<void> {
    await this.#flushAll();
    if (!this.#undoIsKnown) {
      this.#tellingUndo ??= this.#tellUndo();
      await this.#tellingUndo;
    }
    this.requireHeld();
  }

  async #tellUndo(): Promise<void> {
    const { assignment, courier } = this.#options;
    try {
      await courier.send({
        jobId: assignment.job_id,
        text: `${this.#head}${this.#undoFields(this.#undoMost)}"status":"progress"}`,
      }).done;
      this.#undoIsKnown = true;
    } catch (error) {
      this.failed(error as SvcError);
    }
  }

  /**
   * What every report of a run with something to undo begins with. While it runs the server keeps the highest
   * number: the next step with a compensation begins without sending it again.
   */
  #undoFields(count = this.#undoCount ?? 0): string {
    const { onFailure } = this.#options;
    if (this.#undoCount === undefined && !onFailure) return "";
    return `"compensations":${count},${onFailure ? `"on_failure":true,` : ""}`;
  }

  /** The run was ended: no further step begins, and those under way are handed in. */
  end(reason: SvcError): void {
    if (this.over) return;
    if (!this.#undoCount) {
      this.abandon(reason);
      return;
    }
    this.#ended = reason;
    this.#cancel?.();
    this.#progress?.withdraw();
    this.#options.onLost(reason);
    this.#steps.release();
  }

  /** Nothing is reported from here on. */
  abandon(reason: SvcError): void {
    if (this.#lost) return;
    this.#lost = reason;
    this.#cancel?.();
    this.#cancelLines?.();
    this.#progress?.withdraw();
    this.#options.onLost(reason);
    this.#steps.drop();
  }

  /** Takes what a report, or a question whether the lease holds, threw. */
  readonly failed = (error: SvcError): void => {
    if (isRefusal(error)) {
      this.#refused = this.#named(error);
      this.#steps.drop();
    } else if (error.code === "RUN_NOT_RUNNING") this.end(error);
    else this.abandon(error);
  };

  #named({ code, message, status, field, cause }: SvcError): SvcError {
    const detail = { status, ...(field !== undefined && { field }), cause };
    const said = this.#steps
      .named(message)
      .replace(/^yields?(?:\[\d+\])?\.(?:event_filter\.)?/, `step ${this.#yieldedAt}: `);
    return new SvcError(status === 413 ? "REPORT_TOO_LARGE" : code, said, detail);
  }

  /** Goes with the last report. */
  deviates(deviations: readonly StepDeviation[]): void {
    this.#deviations = `${deviationFields(deviations)},`;
  }

  /** `all`: what else the handler waits for, for servers that take it. */
  endYielded(reason: Yield, all?: readonly AskedWait[]): Promise<void> {
    this.#yieldedAt = reason.step_name;
    const yields = all ? `,"yields":${awaitedText(all)}` : "";
    return this.#settle(`"status":"yielded","yield":${JSON.stringify(reason)}${yields}`, true);
  }

  endCompleted(outputText: string): Promise<void> {
    return this.#settle(`"status":"completed","output":${outputText}`, false);
  }

  endFailed(error: ReportedError, compensationsFailed?: number): Promise<void> {
    const failed = compensationsFailed === undefined ? "" : `,"compensations_failed":${compensationsFailed}`;
    return this.#settle(`${failureFields(error)}${failed}`, false);
  }

  /** The last report of a run that was ended meanwhile. */
  async handIn(): Promise<void> {
    await this.#flushing;
    if (this.#lost || !this.#ended) return;
    const { message, code } = this.#ended;
    const { count } = this.#steps;
    const steps = count > 0 ? `,${this.#steps.fields(count)}` : "";
    const failure = failureFields({ message, code, retryable: true });
    await this.#deliver(() => `${this.#head}${this.#undoFields()}${this.#lines.fields()}${failure}${steps}}`);
    this.#lost ??= this.#ended;
  }

  #isHeld(): boolean {
    return !this.over && !this.#refused;
  }

  async #flushAll(): Promise<void> {
    while (this.#steps.count > 0 && this.#isHeld()) await this.#flush();
  }

  #flush(): Promise<void> {
    this.#cancel?.();
    this.#cancel = undefined;
    this.#flushing ??= this.#flushSteps().finally(() => {
      this.#flushing = undefined;
    });
    return this.#flushing;
  }

  async #flushSteps(): Promise<void> {
    const { assignment, courier, checkpointMs } = this.#options;
    while ((this.#steps.count > 0 || (this.#linesAreDue && this.#lines.count > 0)) && this.#isHeld()) {
      const count = this.#steps.fitting();
      const attributes = this.#attributes;
      const tellsUndo = this.#undoMost > 0;
      const awaited = checkpointMs === 0 && count > 0 ? `"awaited":true,` : "";
      const lines = this.#lines.count;
      const own = `${awaited}${this.#undoFields(this.#undoMost)}${this.#attributeFields()}${this.#lines.fields()}`;
      const text = `${this.#head}${own}"status":"progress",${this.#steps.fields(count)}}`;
      this.#linesAreDue = false;
      this.#progress = courier.send({ jobId: assignment.job_id, text });
      try {
        if ((await this.#progress.done) === "withdrawn") return;
        this.#steps.stored(count);
        this.#lines.stored(lines);
        this.#undoIsKnown ||= tellsUndo;
        if (this.#attributes === attributes) this.#attributes = undefined;
        if (this.#lastCharacters !== undefined && this.#steps.fitBeside(this.#lastCharacters)) return;
      } catch (error) {
        this.#flushFailed(error as SvcError, { count, lines });
      } finally {
        this.#progress = undefined;
      }
    }
  }

  /** What a line is refused for fails no run: what came with it goes again without lines. */
  #flushFailed(error: SvcError, { count, lines }: { count: number; lines: number }): void {
    if (lines > 0 && isRefusal(error)) this.#lines.stop();
    else if (count === 0 && error.status === 404) this.#goOnlyAlong = true;
    else {
      if (isRefusal(error)) this.#lines.goOn();
      this.failed(error);
    }
  }

  /** Sends the last report. Steps that the server lacks go before it, or travel with it if they fit. */
  async #settle(fields: string, stepsAhead: boolean): Promise<void> {
    if (stepsAhead) {
      await this.#flushAll();
      if (this.#flushing) await this.#flushing;
    } else {
      this.#cancel?.();
      this.#progress?.withdraw();
      await this.#flushing;
      this.#lastCharacters = fields.length;
      while (!this.#steps.fitBeside(fields.length) && this.#isHeld()) await this.#flush();
    }
    if (this.#lost) return;
    if (this.#ended) return this.handIn();
    if (this.#refused) return this.#settleRefused(this.#refused);
    const { count } = this.#steps;
    const steps = count > 0 ? `,${this.#steps.fields(count)}` : "";
    const rest = `${this.#deviations}${fields}${steps}}`;
    await this.#deliver(
      () => `${this.#head}${this.#undoFields()}${this.#attributeFields()}${this.#lines.fields()}${rest}`,
    );
  }

  async #deliver(textOf: () => string): Promise<void> {
    const { assignment, courier, onLastReport } = this.#options;
    this.#goOnlyAlong = true;
    this.#cancelLines?.();
    const lines = this.#lines.count;
    const sending = courier.send({ jobId: assignment.job_id, text: textOf() });
    onLastReport();
    try {
      await sending.done;
    } catch (error) {
      if (lines > 0 && isRefusal(error as SvcError)) {
        this.#lines.stop();
        return this.#deliver(textOf);
      }
      if (isRefusal(error as SvcError) && !this.#refused) {
        this.#lines.goOn();
        return this.#settleRefused(this.#named(error as SvcError));
      }
      this.#lost = error as SvcError;
    }
  }

  /** Fails the run: a result that the server never takes would otherwise come back attempt after attempt. */
  async #settleRefused(error: SvcError): Promise<void> {
    this.#refused = error;
    const { code, message } = error;
    const runId = this.#options.assignment.run_id;
    this.#options.log.error("the server refused a report", { runId, code, reason: message });
    const failure = failureFields({ message: `result refused: ${message}`, code, retryable: false });
    await this.#deliver(() => `${this.#head}${this.#undoFields()}${this.#lines.fields()}${failure}}`);
  }
}
