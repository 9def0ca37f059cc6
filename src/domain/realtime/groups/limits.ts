/** Consumer groups of an environment, and members of a group at a time. */
export const groupsMax = 1_000;
export const groupMembersMax = 1_000;
export const groupNameBytesMax = 128;
export const groupMetadataBytesMax = 16 * 1024;
/** Members and deliveries of one group that are shown. */
export const groupShownMax = 200;
/** A group made by a subscription is kept this long after its last member. */
export const groupKeptMs = 24 * 60 * 60 * 1000;

/** Unacknowledged deliveries of one group. */
export const groupInflightDefault = 100;
export const groupInflightMax = 1_000;
export const groupRedeliveriesDefault = 3;
export const groupRedeliveriesMax = 1_000;
/** Also how long a member may take to acknowledge. */
export const groupDelayMsDefault = 5_000;
export const groupDelayMsMax = 24 * 60 * 60 * 1000;

/** With ack_mode auto, a delivery not sent within this time goes to another member. */
export const groupHoldMs = 60_000;
/** No delivery is held for less: it could not even be sent in time. */
export const groupHoldMsMin = 200;
/**
 * In this share of its hold a delivery is sent, or it is not: nodes agree on the time to a quarter of a
 * second each.
 */
export const groupHoldShare = 0.9;
/** Deliveries that wait to be sent to one member, unless its group buffers. */
export const groupWindow = 64;
/** What waits longer for a member that does not read goes to the others. */
export const groupStuckMs = 1_000;
/** Deliveries that a group has looked up ahead at one node. */
export const groupAheadMax = 2_000;
/** A group that finds no candidate in its log for this long stores how far it has read, and then reads on. */
export const groupReadMs = 500;
/** A delivery whose members disappeared this many times is given up: it may be what kills them. */
export const groupLossesMax = 25;

/** A member without a heartbeat counts as gone after the first, and is removed after the second. */
export const groupFreshMs = 3_000;
export const groupSilenceMs = 5_000;
/** Changes of groups by other nodes are seen after this when their hint is lost. */
export const groupRefreshMs = 500;
/** Members and groups looked after in one query. */
export const groupSliceMax = 500;
