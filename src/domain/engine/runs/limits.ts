/** Due executions moved in one transaction. */
export const wakeSliceMax = 200;
/** Leases of one run that may end without any report in a row, before the run fails as `WORKER_LOST`. */
export const leasesLostMax = 10;
/** A lane of a function with a limit is forgotten this long after the last claim from it. */
export const laneIdleMsMax = 10 * 60 * 1000;
/** Runs and executions that the sweeper compares in one round. */
export const sweepSliceMax = 2_000;

/** What the steps of a run hold that are read at once, and steps of a portion where they hold more. */
export const stepsBytesMax = 64 * 1024 * 1024;
export const stepsAtOnceMax = 500;

/** Children started, and parents told, in one transaction. */
export const childrenSliceMax = 100;
/** Callers of one node that wait for the ends of runs; runs looked after in one query. */
export const endWaitsMax = 10_000;
export const endLookSlice = 500;

/** Events, and fresh waits, that a matcher's pass takes; bytes of event data read, or handed on, at once. */
export const matcherSliceMax = 500;
export const matcherBytesMax = 16 * 1024 * 1024;
/** Runs that one transaction of a matcher moves, and matches that one pass gathers. */
export const matcherMovesMax = 500;
export const matcherMatchesMax = 10_000;

/** A run is compensating for at most this long; what is not undone by then is listed. */
export const compensatingMsMax = 24 * 60 * 60 * 1000;
/** Jobs in which a run is undone, the first one included. */
export const compensationTriesMax = 5;
/** A worker whose run was ended has this long to hand in what it has finished, before the run is undone. */
export const handInMsMax = 10_000;

/** Waits of one environment for states that are not events. */
export const stateWaitsMax = 100_000;
/** States looked at in one query, changes read in one, and places of an environment in one pass. */
export const stateSliceMax = 500;
export const stateChangesMax = 2_000;
export const statePlacesMax = 20;
/** Of the output of a run that was waited for; twenty stay within what a step may hold. */
export const metOutputCharsMax = 200_000;

/** Functions that a search of runs finds by their ids beyond the runs that it looks at. */
export const searchedFunctionsMax = 20;
/** Runs that are not over, of the environment or function, that a list by status begins with. */
export const fewLiveMax = 5_000;

/** Ended runs whose spans one look makes. */
export const spanRunsMax = 50;
/** Steps of them that become spans; the exporter's queue holds about as many. */
export const spanStepsMax = 1_000;
/** Ended runs that wait for their spans; beyond it a run stays without. */
export const spansWaitingMax = 10_000;
