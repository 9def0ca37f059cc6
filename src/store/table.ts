import { eventNameBytesMax, functionIdBytesMax } from "../kit/limits.ts";
import { stepIdBytesMax } from "../kit/step-id.ts";

/** What the rows of a table belong to: each is in one environment, in one org, or of the whole installation. */
export type TableScope = "environment" | "org" | "installation";

export interface TableAbout {
  holds: string;
  scope: TableScope;
  /** What ends its rows, so that no table grows for ever. */
  endsWith: string;
  /** Of a table with an `environment_id`: how the rows of a deleted environment go. */
  purge?: PurgePlace;
  /** The most bytes that each text in its indexes may have, besides `sharedTexts`. */
  texts?: Readonly<Record<string, number>>;
}

export interface PurgePlace {
  /** Its place among all tables, low first: rows that loops still act on go before the others. */
  at: number;
  /** Its primary key. */
  key: readonly string[];
  /**
   * Where no index begins with `environment_id`: the column with the run's id. Such rows go just before their
   * run.
   */
  ofRun?: string;
  /**
   * The table whose row its maker holds to the commit, where callers make its rows only for such a row. A row
   * made behind the purge is found by its next pass.
   */
  under?: string;
}

/** Ids that we make, hashes, and words of closed lists: nobody outside can make them longer. */
export const ours = 80;
/** Of a text whose bound is in characters. */
export const utf8 = (charsMax: number): number => 4 * charsMax;
/** An invoke logs an event named by its function. */
export const eventNameBytes = Math.max(eventNameBytesMax, functionIdBytesMax);
/** Settings of operators: names of nodes. */
export const nodeIdBytes = 255;
/** Callers as the audit names them: keys, users, or `dev`. */
export const callerIdBytes = 255;
export const laneIdBytes = 3 * ours;

/** The same of columns that have one meaning in every table. */
export const sharedTexts: Readonly<Record<string, number>> = {
  // Callers name it, but it is only stored where a row of ours has it.
  environment_id: ours,
  org_id: ours,
  project_id: ours,
  run_id: ours,
  event_id: ours,
  entity_id: 256,
  function_id: functionIdBytesMax,
  group_id: ours,
  step_id: stepIdBytesMax,
  event_name: eventNameBytes,
  lane_id: laneIdBytes,
  role_id: ours,
  policy_id: ours,
};
