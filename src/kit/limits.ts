/** Every limit of the product, with its unit in its name. Those a company may want to move are settings that default to these. */

/** Under 255 bytes including the `events:` prefix that the server adds. */
export const eventNameBytesMax = 248;
export const requestBodyBytesMax = 4 * 1024 * 1024;
export const stepOutputBytesMax = 4 * 1024 * 1024;
export const idempotencyKeyBytesMax = 255;
export const idempotencyKeptMs = 24 * 60 * 60 * 1000;
export const triggerBatchMax = 100;
export const progressStepsMax = 500;

export const listLimitDefault = 20;
export const listLimitMax = 200;
/** Gauges that are counted in the store: how far, how long an answer is believed, and how long a reader waits for one. */
export const gaugeCountMax = 100_000;
export const gaugeKeptMs = 5_000;
export const gaugeWaitMsMax = 500;
export const filterValuesMax = 200;
export const countCap = 10_000;
export const namesScanCap = 10_000;
export const namesMax = 200;
export const searchBytesMax = 256;

export const functionIdBytesMax = 200;
export const functionNameBytesMax = 256;
export const functionTriggersMax = 50;
export const functionDefinitionBytesMax = 256 * 1024;
export const expressionBytesMax = 4 * 1024;
export const environmentNameBytesMax = 63;

export const workerFunctionsMax = 1_000;
export const workerJobsMax = 1_000;
export const workerLabelsMax = 50;
export const workerSilenceMsMax = 5 * 60 * 1000;
/** Jobs handed out in one poll answer, however many slots a worker says are free. */
export const pollJobsMax = 200;
export const exchangeReportsMax = 200;

/** A slot is fired so long after its time at the latest; longer than a leader's successor takes to begin. */
export const cronLateMsMax = 10_000;
/** Missed slots that are counted one by one. */
export const cronSlotsCountMax = 1_000;
/** Environments whose triggers are taken up in one tick, and schedules that fire in one. */
export const scheduleSliceMax = 100;
/** A longer value is replaced by its hash. */
export const debounceKeyBytesMax = 512;
/** Debounce entries that fire in one transaction; entries in one answer. */
export const debounceSliceMax = 200;
export const debounceListDefault = 100;
export const debounceListMax = 1_000;
/** Jobs listed in one heartbeat. */
export const heartbeatJobsMax = 1_000;
/** Messages that wait to be written to one worker's stream; one that reads no further is sent away. */
export const streamOutboxMax = 256;
/** Reports and steps of one stream that wait to be stored, before no more is read from it. */
export const streamWaitingMax = 1_000;
/** A stream begins with `register`, after so long at the latest. */
export const streamRegisterMs = 10_000;
/** A job that is not acked within this goes to another worker. */
export const streamAckMs = 5_000;
/** A worker that does not ack, or says it is full, is handed no further job for so long. */
export const streamDistrustMs = 10_000;
export const streamFullMs = 1_000;
/** A stream without any heartbeat for so long is closed: three of those that workers send by themselves. */
export const streamSilenceMsMax = 90_000;
export const streamHeartbeatMs = 30_000;
/** Finished steps that come within this over a stream are stored together. */
export const stepGatherMs = 10;

/** Runs that a node knows to exist, for the events they emit. */
export const runsRememberedMax = 10_000;
/** Of a value at `actorKey`; the rest of a longer one is not looked at. */
export const actorIdCharactersMax = 200;

export const runAttemptsMax = 100;
/** How many invokes may lead to a run, one started by the other. */
export const invokeDepthMax = 32;
export const sleepMsMax = 366 * 24 * 60 * 60 * 1000;
/** A path is part of an index. */
export const matchPathBytesMax = 512;
export const waitMsDefault = 7 * 24 * 60 * 60 * 1000;
export const waitMsMax = 366 * 24 * 60 * 60 * 1000;
export const invokeMsDefault = 30_000;
export const invokeMsMax = 366 * 24 * 60 * 60 * 1000;
/** Events, and fresh waits, that one pass of a matcher takes; and how many bytes of event data at once. */
export const matcherSliceMax = 500;
export const matcherBytesMax = 16 * 1024 * 1024;
/** Runs that one transaction of a matcher moves, and matches that one pass gathers. */
export const matcherMovesMax = 500;
export const matcherMatchesMax = 10_000;
/** Children started, and parents told, in one transaction. */
export const childrenSliceMax = 100;
export const runTimeoutMsMax = 366 * 24 * 60 * 60 * 1000;

/** Items that wait in front of one combiner before callers are told to come back. */
export const combineWaitingMax = 10_000;
export const combineLanes = 4;
/** Under load a flush waits for the callers that lately came together, so long after the last one began. */
export const combinePaceMs = 16;
export const flushItemsMax = 128;

/** An authenticated key or session is believed for this long without asking the store again (design: key deletion). */
export const keyLeaseMs = 500;
/** Sockets, streams and held polls are asked so often whether they may go on: with what is believed, within a second. */
export const reauthorizeEveryMs = 250;
/** Credentials of standing calls that are looked up at once. */
export const reauthorizeConcurrency = 8;
/** Leases of one run that may end without any report in a row, before the run fails as `WORKER_LOST`. */
export const leasesLostMax = 10;
/** Callers of one node that wait for the ends of runs; runs looked after in one query. */
export const endWaitsMax = 10_000;
export const endLookSlice = 500;
export const syncTimeoutMsDefault = 30_000;
export const syncTimeoutMsMax = 15 * 60 * 1000;
/** Due executions moved in one transaction. */
export const wakeSliceMax = 200;
/** Events of one commit travel with the hint when they are no larger than this; others are read from the store. */
export const feedHintBytesMax = 64 * 1024;
/** Events read at once by a feed, and environments compared at once. */
export const feedSliceMax = 500;
/** A node that falls silent loses the names it holds on the bus, and its leases on duties in the store, after this. */
export const nameKeptMs = 3_000;
/** What a rotated secret signed is believed for so long; so long a node may still start with the master key of before. */
export const keyringKeptMs = 24 * 60 * 60 * 1000;
/** Nodes are asked to confirm a rotation for so long; those that do not follow by themselves. */
export const confirmMs = 2_000;
export const nodesMax = 100;
/** A node that said nothing for so long is no longer listed. */
export const nodeForgottenMs = 60 * 60 * 1000;
/** Above this uncertainty of the time a node neither claims nor leads. */
export const clockUncertaintyMsMax = 250;
/** Rows deleted in one transaction by retention. */
export const purgeSliceMax = 1_000;
export const retryDelayMsMax = 7 * 24 * 60 * 60 * 1000;
/** Environments whose functions a node keeps in memory, and pinned definitions of earlier versions. */
export const definitionsKeptMax = 5_000;
/** Lanes of one function that are looked at in one go; the next look goes on behind them. */
export const laneLookMax = 1_000;
/** A lane of a function with a limit is forgotten so long after the last claim from it. */
export const laneIdleMsMax = 10 * 60 * 1000;
/** Topics in one answer. */
export const topicsListMax = 1_000;
export const publishBatchMax = 100;
/** Messages of one flush: they start nothing, so more of them go together than events. */
export const publishFlushMax = 512;
export const publishPaceMs = 4;
/** Consumer groups of an environment, and who is in one at a time. */
export const groupsMax = 1_000;
export const groupMembersMax = 1_000;
export const groupNameBytesMax = 128;
export const groupMetadataBytesMax = 16 * 1024;
/** Deliveries of one group that are not acknowledged (proto/README.md 'Consumer groups'). */
export const groupInflightDefault = 100;
export const groupInflightMax = 1_000;
export const groupRedeliveriesDefault = 3;
export const groupRedeliveriesMax = 1_000;
/** Also how long a member may take to acknowledge. */
export const groupDelayMsDefault = 5_000;
export const groupDelayMsMax = 24 * 60 * 60 * 1000;
/** Where sending acknowledges, a delivery that was not sent in this time goes to another member. */
export const groupHoldMs = 60_000;
/** No delivery is held for less: it could not even be sent in time. */
export const groupHoldMsMin = 200;
/** In this share of its hold a delivery is sent, or it is not: nodes agree on the time to a quarter of a second each. */
export const groupHoldShare = 0.9;
/** Deliveries that wait to be sent to one member, unless its group buffers. */
export const groupWindow = 64;
/** What waits longer for a member that does not read goes to the others. */
export const groupStuckMs = 1_000;
/** Deliveries that a group has looked up ahead at one node. */
export const groupAheadMax = 2_000;
/** A member without a sign of life is no longer believed to be there; it is forgotten a little later. */
export const groupFreshMs = 3_000;
export const groupSilenceMs = 5_000;
/** A delivery that so many members took with them when they went is given up: it may be what kills them. */
export const groupLossesMax = 25;
/** What other nodes changed of groups is seen after this, should no hint tell of it. */
export const groupRefreshMs = 500;
/** A group that was made by a subscription is kept so long after its last member. */
export const groupKeptMs = 24 * 60 * 60 * 1000;
/** Members and groups looked after in one query. */
export const groupSliceMax = 500;
/** Rows of the capacity endpoints. */
export const capacityRowsDefault = 100;
export const capacityRowsMax = 1_000;

/** Roles and policies of an org; what decides over its calls is believed for this long, of so many orgs at once. */
export const rolesMax = 200;
export const policiesMax = 500;
export const policyVersionsMax = 10_000;
export const roleNameCharsMax = 100;
export const policyNameCharsMax = 100;
/** No resource has a longer name; policies are not asked about one, as every pattern may cost a look at every letter. */
export const resourceNameCharsMax = 4 * 1024;
export const policyTextCharsMax = 8 * 1024;
export const accessKeptMs = 500;
export const accessOrgsMax = 5_000;
/** Judging one call by its policies takes no longer than this: else it is refused. */
export const decisionMsMax = 250;
export const dryRunDecisionsMax = 10_000;

export const emailCharsMax = 254;
export const userNameCharsMax = 200;
export const passwordCharsMin = 8;
export const passwordBytesMax = 1_024;
export const usersMax = 10_000;
/** A dashboard session, and its cookie. */
export const sessionMs = 24 * 60 * 60 * 1000;
export const keyNameCharsMax = 200;
export const keyRolesMax = 50;
export const keysMax = 10_000;

export const platformUsersMax = 1_000;
/** Lines of the platform's audit: how long they are kept, and how many may wait at a node to be written. */
export const platformAuditKeptMs = 366 * 24 * 60 * 60 * 1000;
export const platformAuditWaitingMax = 10_000;

/** A second resume of a run is refused for so long. */
export const resumeWindowMs = 2 * 60 * 1000;
/** A resume that nobody finished is finished by the wake loop after this. */
export const resumeHealMs = 10_000;
/** Telling a control message takes at most this. */
export const controlMs = 2_000;
export const cancelReasonRunes = 1_024;

export const environmentsMax = 1_000;
export const projectsMax = 1_000;
export const orgNameCharsMax = 200;
export const projectNameCharsMax = 200;
/** A deleted environment counts as purged no earlier than this after its deletion: whoever was let in before has written by then. */
export const purgeGraceMs = 60_000;
/** What one slice of a purge aims at, in this process and in a server of its own; and how long one round of slices takes. */
export const purgeSliceMs = 5;
export const purgeRemoteSliceMs = 50;
export const purgeRoundMs = 250;
/** Subscriptions of one connection, and how many past events one may ask for (design: rulings). */
export const subscriptionsMax = 100;
export const replayMax = 1_000;
/** Newest events that are looked through for those a replay with wildcards or a filter asks for. */
export const replayScanMax = 10_000;
export const patternBytesMax = 1_024;
/** What a client may send in one WebSocket frame. */
export const socketFrameBytesMax = 1024 * 1024;
/** A socket that has not taken so much is closed; what is read from the store for it waits at the lesser mark. */
export const socketBufferBytesMax = 8 * 1024 * 1024;
export const socketWaitBytes = 1024 * 1024;
/** Events, and characters of them, that wait for the reader of one stream before it is told to come back. */
export const deliveriesWaitingMax = 10_000;
export const deliveriesCharsMax = 16 * 1024 * 1024;
/** Larger system frames stay on the node on which they come up: the bus does not carry them. */
export const frameBytesMax = 512 * 1024;
/** A node's word that it has readers of run frames is believed so long. */
export const frameInterestMs = 5_000;
/** An environment id of more bytes is no subject token, so it has no frames. */
export const frameEnvironmentBytesMax = 110;
/** Environments named in one word about interest, and runs looked up at once for their frames. */
export const frameSliceMax = 500;
/** Ended runs that wait to be looked up for their frames; more are not told of. */
export const endsWaitingMax = 20_000;
/** Runs whose history is read for one page of an environment's audit trail. */
export const auditRunsMax = 500;
/** Outputs that the history of a resume keeps of the steps that it discards. */
export const discardedBytesMax = 256 * 1024;
/** A wake that nobody moved for so long is overdue. */
export const overdueMs = 15_000;
/** Runs and executions that the sweeper compares in one round. */
export const sweepSliceMax = 2_000;
/** Rows that one check of the integrity report looks at; how long a report is believed, and how long one is waited for. */
export const integrityRowsMax = 10_000;
export const integrityKeptMs = 1_000;
export const integrityWaitMsMax = 5_000;
export const integrityEnvironmentsMax = 1_000;
/** Rows that a round of retention deletes in one transaction, and slices in one round. */
export const expireSliceMax = 200;
export const expireSlicesMax = 500;
/** Days that an environment may keep its past, where it does not keep it for ever. */
export const retentionDaysMax = 36_500;
/** So long one such transaction may keep others from writing: the next slice is made to fit. */
export const expireSliceMs = 10;
export const expireSliceMin = 10;

export const secretsMax = 1_000;
export const secretNameCharsMax = 200;
export const secretBytesMax = 64 * 1024;
/** Values of secrets are believed for so long. */
export const secretsKeptMs = 1_000;
/** Transport failures in a row that open a breaker, and how long it is open before one call is tried. */
export const breakerFailsMax = 5;
export const breakerOpenMs = 30_000;
export const breakerForgottenMs = 24 * 60 * 60 * 1000;
/** Calls of one node to endpoints at once, in all and to one. */
export const pushCallsMax = 200;
export const pushCallsEndpointMax = 50;
/** How long this node's own caller waits for jobs at a time; a setting for workers' polls must not make it ask on and on. */
export const pushHoldMs = 2_000;
/** Push functions that one node serves. */
export const pushFunctionsMax = 10_000;
export const pushAnswerBytesMax = 8 * 1024 * 1024;

/** A message of the bus, and how often an outbox entry is tried; both by setting. */
export const busPayloadBytesMax = 1024 * 1024;
export const outboxAttemptsMax = 10;
/** Between two tries of a refused entry: from, and at most. */
export const outboxRetryMsMin = 250;
export const outboxRetryMsMax = 5_000;
/** Handing one message to the bus takes at most this; whoever wrote an entry has so long before the leader tries. */
export const outboxSendMs = 2_000;
/** Entries of one kind that are tried in one round. */
export const outboxSliceMax = 50;
export const outboxErrorCharsMax = 500;
/** An entry that nobody tried for so long, and an event that was not mirrored for so long, are overdue. */
export const outboxOverdueMs = 60_000;
/** Dead letters that nobody requeued or discarded are forgotten after this. */
export const deadLetterKeptMs = 90 * 24 * 60 * 60 * 1000;
/** The list of dead letters. */
export const deadLettersDefault = 50;
export const deadLettersMax = 500;
export const deadLettersOffsetMax = 10_000;
/** Events mirrored in one transaction, logs compared in one query, and how long one round goes on. */
export const mirrorSliceMax = 100;
export const mirrorLogsMax = 500;
export const mirrorRoundMs = 1_000;
/** JetStream answers within this; keeps the mirror's messages, and knows their ids again, for so long. */
export const mirrorAnswerMs = 5_000;
export const mirrorKeptMs = 7 * 24 * 60 * 60 * 1000;
export const mirrorRepeatMs = 10 * 60 * 1000;

/** Audit rows that wait in memory; what comes beyond stays in the spool file alone, up to its size. */
export const auditWaitingMax = 20_000;
export const auditSpoolBytesMax = 256 * 1024 * 1024;
/** Rows of one file of the spool, and of one flush. */
export const auditFlushRowsMax = 1_000;
/** Rows gather for so long before they are written. */
export const auditGatherMs = 250;
export const auditPayloadBytesMax = 8 * 1024;
export const auditTextCharsMax = 512;
/** Denials of one caller at one operation that are written in a minute; the others are counted in the next row. */
export const auditDenialsMax = 60;
export const auditCallersKeptMax = 10_000;
/** Rows whose hashes one verification checks. */
export const auditVerifyRowsMax = 200_000;
/** Keys whose requests one node counts at a time. */
export const rateLimitedKeysMax = 10_000;

/** A shutdown, beyond what its settings give it: of one part, and of all together. */
export const closePartMsMax = 3_000;
export const closeMsMax = 10_000;
/** Telling the other nodes of it takes at most this of that. */
export const drainHintMsMax = 1_000;
