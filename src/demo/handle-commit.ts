import { appendFileSync } from "node:fs";
import { createFunction, type Jsonify, type SvcFunction } from "../sdk/index.ts";
import { type Commit, type CommitKind, classify, parseSubject, type Size } from "./classify.ts";
import { journalTo } from "./journal.ts";

export const functionId = "demo-commit";
export const eventName = "commit.pushed";
export const stepNames = ["parse", "classify", "record"] as const;

/** The run's output, and a line of the results file. */
export interface CommitResult {
  hash: string;
  kind: CommitKind;
  size: Size;
  author: string;
  lines: number;
}

// Each step takes about as long as a call to another service, so that a person can watch and a kill can hit.
const workMsMin = 10;
const workMsSpread = 32;
const pause = (hash: string) =>
  new Promise((done) =>
    setTimeout(done, workMsMin + (Number.parseInt(hash.slice(0, 4), 16) % workMsSpread || 0)),
  );

/** Three durable steps; whatever kills the worker between them, each is finished once. */
export function commitFunction(files: { journal: string; results: string }): SvcFunction {
  const note = journalTo(files.journal);

  return createFunction<{ "commit.pushed": Commit }>(
    { id: functionId, name: "Handle a commit", event: eventName },
    async ({ event, step, run }) => {
      const commit = event.data;
      note("enter", run.id);
      const subject = await durably("parse", () => parseSubject(commit.subject));
      const verdict = await durably("classify", () => classify(commit, subject));
      return durably("record", () => {
        const lines = commit.insertions + commit.deletions;
        const result: CommitResult = { hash: commit.hash, ...verdict, author: commit.author, lines };
        appendFileSync(files.results, `${JSON.stringify(result)}\n`);
        return result;
      });

      /** `step.run`, with a note when the work begins and when the server has acknowledged it. */
      async function durably<Output>(
        name: (typeof stepNames)[number],
        work: () => Output,
      ): Promise<Jsonify<Output>> {
        let ran = false;
        const output = await step.run(name, async () => {
          ran = true;
          note("start", run.id, name);
          await pause(commit.hash);
          return work();
        });
        if (ran) note("stored", run.id, name);
        return output;
      }
    },
  );
}
