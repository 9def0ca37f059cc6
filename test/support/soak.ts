/**
 * What is tried at random is tried with the same numbers in every `test:all`, so that what failed fails again. `test:soak`
 * sets this: more of it, and by another seed each time.
 */
export const soakVariable = "SVC_TEST_SOAK";
export const isSoak = process.env[soakVariable] === "1";

const anySeed = () => Math.floor(Math.random() * 1e9);

/** Of whatever is tried at random in this process; said, so that a soak can be had again. */
export const seed = Number(process.env.SVC_TEST_SEED ?? (isSoak ? anySeed() : 1));
if (isSoak) console.log(`SVC_TEST_SEED=${seed}`);
