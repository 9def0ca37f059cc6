/** Groups of one function; further failures are counted in one group of the function. */
export const errorGroupsMax = 100;
/** Groups, and runs of each, that one check of the integrity report counts. */
export const checkedGroupsMax = 50;
export const checkedRunsMax = 1_000;
/** Characters of an error's message that are looked at, and those that a group keeps. */
export const errorMessageReadMax = 2_048;
export const errorMessageCharsMax = 300;
export const errorCodeCharsMax = 100;
export const errorFrameCharsMax = 200;
/** Characters of a stack in which its first frame is looked for. */
export const errorStackReadMax = 4_096;
