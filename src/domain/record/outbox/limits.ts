/**
 * The longest time to publish one message to the bus; the writer of an entry has this long before the leader
 * tries.
 */
export const outboxSendMs = 2_000;
/** Entries of one kind that are tried in one round. */
export const outboxSliceMax = 50;
export const outboxErrorCharsMax = 500;
/** Between two tries of a refused entry: from, and at most. */
export const outboxRetryMsMin = 250;
export const outboxRetryMsMax = 5_000;
/** An outbox entry not tried for this long, and an event not mirrored for this long, are overdue. */
export const outboxOverdueMs = 60_000;

/** Dead letters neither requeued nor discarded are deleted after this. */
export const deadLetterKeptMs = 90 * 24 * 60 * 60 * 1000;
/** The list of dead letters. */
export const deadLettersDefault = 50;
export const deadLettersMax = 500;
export const deadLettersOffsetMax = 10_000;

/** Events mirrored in one transaction, logs compared in one query, and how long one round goes on. */
export const mirrorSliceMax = 100;
export const mirrorLogsMax = 500;
export const mirrorRoundMs = 1_000;
/** Characters of the messages of one slice; a larger event goes alone. */
export const mirrorCharactersMax = 4 * 1024 * 1024;
/** Events listed of those that the mirror has not sent; they are read whole. */
export const unmirroredListedMax = 200;
