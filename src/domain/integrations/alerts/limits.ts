export const alertRulesMax = 100;
export const alertNameCharsMax = 100;
export const alertTargetsMax = 10;
export const alertUrlBytesMax = 2_048;
export const alertAddressCharsMax = 254;
export const alertAddressesMax = 10;
/** The longest of all times of a rule, and the shortest before targets are told again. */
export const alertMsMax = 7 * 24 * 60 * 60 * 1000;
export const alertMsMin = 1_000;
export const repeatAfterMsDefault = 4 * 60 * 60 * 1000;
export const resolveAfterMsDefault = 10 * 60 * 1000;
export const alertWindowMinutesMax = 24 * 60;
/** The longest silence. */
export const silenceMsMax = 366 * 24 * 60 * 60 * 1000;
/** Things of one rule that have an alert each; where there are more, none of them is taken to be over. */
export const alertSubjectsMax = 50;
/** Things that happened are counted up to this, as callers see them. */
export const alertCountMax = 2_147_483_647;
/** Rules that are looked at in one tick. */
export const rulesLookedAtMax = 500;
/** A rule whose look fails is looked at again after this. */
export const unreadRuleMs = 60_000;
/** Messages that the leader sends at once: in all, of one environment, and to one target. */
export const alertSendsMax = 32;
export const alertSendsOfEnvironmentMax = 4;
/** A message that is being sent is free again this long after its call must be over. */
export const alertLeaseBesideMs = 3_000;
/** Between two tries of a message, at most. */
export const alertPauseMsMax = 60 * 60 * 1000;
export const alertErrorCharsMax = 300;
/** An alert is kept for this long after its end. */
export const alertKeptMs = 30 * 24 * 60 * 60 * 1000;
/** Mails that an environment sends at once, and in an hour: who makes rules must not fill foreign boxes. */
export const alertMailsAtOnceMax = 50;
export const alertMailsHourMax = 120;
/** Environments whose mails a node counts. */
export const alertMailersMax = 10_000;
