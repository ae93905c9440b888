"""Cron runs by table: reasoned by hand, or found by walking through real time.

The expected times never come from cronsim. The rows of the first table are from a
calendar. Those of the second are found by `walk`, which shares no code with the package:
it goes through real time and asks at every minute what a clock on the wall shows.
"""

import calendar
from datetime import UTC, date, datetime, timedelta
from functools import cache
from zoneinfo import ZoneInfo

import pytest

from durio.model.cron import Cron

MINUTE = timedelta(minutes=1)
MONTHS = {name: n for n, name in enumerate(calendar.month_abbr) if name}
DAYS = {"Sun": 0, "Mon": 1, "Tue": 2, "Wed": 3, "Thu": 4, "Fri": 5, "Sat": 6}
NAMES = {name.upper(): str(n) for name, n in (MONTHS | DAYS).items()}

# text | after | next runs. UTC; 1 January 2026 is a Thursday.
CALENDAR = """
* * * * * | 2026-01-01 00:00 | 2026-01-01 00:01, 2026-01-01 00:02
* * * * * | 2026-12-31 23:59 | 2027-01-01 00:00
*/5 * * * * | 2026-01-01 00:00 | 2026-01-01 00:05, 2026-01-01 00:10
*/5 * * * * | 2026-01-01 00:04 | 2026-01-01 00:05
*/5 * * * * | 2026-02-28 23:58 | 2026-03-01 00:00
*/7 * * * * | 2026-01-01 00:49 | 2026-01-01 00:56, 2026-01-01 01:00, 2026-01-01 01:07
*/45 * * * * | 2026-01-01 00:00 | 2026-01-01 00:45, 2026-01-01 01:00
*/60 * * * * | 2026-01-01 00:00 | 2026-01-01 01:00, 2026-01-01 02:00
3/20 * * * * | 2026-01-01 00:00 | 2026-01-01 00:03, 2026-01-01 00:23, 2026-01-01 00:43
10-20/5 * * * * | 2026-01-01 00:12 | 2026-01-01 00:15, 2026-01-01 00:20, 2026-01-01 01:10
0,15,30,45 * * * * | 2026-01-01 00:45 | 2026-01-01 01:00
1,2,40-42 * * * * | 2026-01-01 00:02 | 2026-01-01 00:40, 2026-01-01 00:41
05 03 * * * | 2026-01-01 00:00 | 2026-01-01 03:05
59 23 * * * | 2026-01-01 23:59 | 2026-01-02 23:59
0 0 * * * | 2026-02-28 00:00 | 2026-03-01 00:00
0 0 * * * | 2028-02-28 00:00 | 2028-02-29 00:00, 2028-03-01 00:00
0 */6 * * * | 2026-01-01 00:00 | 2026-01-01 06:00, 2026-01-01 12:00, 2026-01-01 18:00, 2026-01-02 00:00
0 */5 * * * | 2026-01-01 19:30 | 2026-01-01 20:00, 2026-01-02 00:00
0 2/8 * * * | 2026-01-01 00:00 | 2026-01-01 02:00, 2026-01-01 10:00, 2026-01-01 18:00
30 8,12,18 * * * | 2026-01-01 12:30 | 2026-01-01 18:30, 2026-01-02 08:30
# business hours
0 9-17 * * MON-FRI | 2026-01-02 16:30 | 2026-01-02 17:00, 2026-01-05 09:00, 2026-01-05 10:00
*/30 9-17 * * 1-5 | 2026-01-02 17:00 | 2026-01-02 17:30, 2026-01-05 09:00
0 9 * * MON-FRI | 2026-01-01 10:00 | 2026-01-02 09:00, 2026-01-05 09:00, 2026-01-06 09:00
0 9 * * mon-fri | 2026-01-03 00:00 | 2026-01-05 09:00
0 8-12,14-18 * * MON-FRI | 2026-01-02 12:00 | 2026-01-02 14:00
15 10 * * SAT,SUN | 2026-01-01 00:00 | 2026-01-03 10:15, 2026-01-04 10:15, 2026-01-10 10:15
# days of the week
0 0 * * 0 | 2026-01-01 00:00 | 2026-01-04 00:00, 2026-01-11 00:00
0 0 * * 7 | 2026-01-01 00:00 | 2026-01-04 00:00, 2026-01-11 00:00
0 0 * * SUN | 2026-01-04 00:00 | 2026-01-11 00:00
0 0 * * 0-7 | 2026-01-01 00:00 | 2026-01-02 00:00
0 0 * * 5-7 | 2026-01-01 00:00 | 2026-01-02 00:00, 2026-01-03 00:00, 2026-01-04 00:00, 2026-01-09 00:00
0 0 * * FRI-SUN | 2026-01-04 12:00 | 2026-01-09 00:00, 2026-01-10 00:00, 2026-01-11 00:00
0 0 * * MON-SUN | 2026-01-01 00:00 | 2026-01-02 00:00, 2026-01-03 00:00
0 0 * * SUN-TUE | 2026-01-01 00:00 | 2026-01-04 00:00, 2026-01-05 00:00, 2026-01-06 00:00, 2026-01-11 00:00
0 0 * * SUN-SUN | 2026-01-01 00:00 | 2026-01-04 00:00, 2026-01-11 00:00
0 0 * * */2 | 2026-01-01 00:00 | 2026-01-03 00:00, 2026-01-04 00:00, 2026-01-06 00:00, 2026-01-08 00:00
0 0 * * 1/2 | 2026-01-01 00:00 | 2026-01-02 00:00, 2026-01-04 00:00, 2026-01-05 00:00, 2026-01-07 00:00
0 0 * * MON-FRI/2 | 2026-01-01 00:00 | 2026-01-02 00:00, 2026-01-05 00:00, 2026-01-07 00:00
0 0 * * */7 | 2026-01-01 00:00 | 2026-01-04 00:00, 2026-01-11 00:00
0 0 * * WED | 2026-12-31 00:00 | 2027-01-06 00:00
# first Monday and its like
0 9 * * MON#1 | 2026-01-01 00:00 | 2026-01-05 09:00, 2026-02-02 09:00, 2026-03-02 09:00, 2026-04-06 09:00, 2026-05-04 09:00, 2026-06-01 09:00
0 9 * * MON#1 | 2026-06-01 09:00 | 2026-07-06 09:00, 2026-08-03 09:00, 2026-09-07 09:00, 2026-10-05 09:00, 2026-11-02 09:00, 2026-12-07 09:00
0 9 * * 1#1 | 2026-12-07 09:00 | 2027-01-04 09:00
0 0 * * TUE#2 | 2026-01-01 00:00 | 2026-01-13 00:00, 2026-02-10 00:00, 2026-03-10 00:00
0 0 * * THU#4 | 2026-11-01 00:00 | 2026-11-26 00:00
0 0 * 11 THU#4 | 2026-01-01 00:00 | 2026-11-26 00:00, 2027-11-25 00:00
0 0 * * SUN#1 | 2026-01-01 00:00 | 2026-01-04 00:00, 2026-02-01 00:00, 2026-03-01 00:00
0 0 * * 7#1 | 2026-01-01 00:00 | 2026-01-04 00:00, 2026-02-01 00:00
0 0 * * MON#5 | 2026-01-01 00:00 | 2026-03-30 00:00, 2026-06-29 00:00, 2026-08-31 00:00
0 0 * * MON#1,MON#3 | 2026-01-01 00:00 | 2026-01-05 00:00, 2026-01-19 00:00, 2026-02-02 00:00
0 0 * 2 SUN#5 | 2026-01-01 00:00 | 2032-02-29 00:00
# the last of something
0 18 L * * | 2026-01-01 00:00 | 2026-01-31 18:00, 2026-02-28 18:00, 2026-03-31 18:00, 2026-04-30 18:00
0 18 L * * | 2028-02-01 00:00 | 2028-02-29 18:00, 2028-03-31 18:00
0 0 L 2 * | 2026-01-01 00:00 | 2026-02-28 00:00, 2027-02-28 00:00, 2028-02-29 00:00
0 0 1,L * * | 2026-01-15 00:00 | 2026-01-31 00:00, 2026-02-01 00:00, 2026-02-28 00:00
0 17 LW * * | 2026-01-01 00:00 | 2026-01-30 17:00, 2026-02-27 17:00, 2026-03-31 17:00, 2026-04-30 17:00, 2026-05-29 17:00
0 17 LW * * | 2026-07-31 17:00 | 2026-08-31 17:00, 2026-09-30 17:00, 2026-10-30 17:00, 2026-11-30 17:00, 2026-12-31 17:00
0 17 LW 3,6,9,12 * | 2026-01-01 00:00 | 2026-03-31 17:00, 2026-06-30 17:00, 2026-09-30 17:00, 2026-12-31 17:00
0 0 * * 5L | 2026-01-01 00:00 | 2026-01-30 00:00, 2026-02-27 00:00, 2026-03-27 00:00, 2026-04-24 00:00, 2026-05-29 00:00
0 0 * * FRIL | 2026-06-30 00:00 | 2026-07-31 00:00, 2026-08-28 00:00, 2026-09-25 00:00, 2026-10-30 00:00
0 0 * * 0L | 2026-01-01 00:00 | 2026-01-25 00:00, 2026-02-22 00:00, 2026-03-29 00:00
0 0 * * 7L | 2026-01-01 00:00 | 2026-01-25 00:00, 2026-02-22 00:00
0 1 * 3,10 SUNL | 2026-01-01 00:00 | 2026-03-29 01:00, 2026-10-25 01:00, 2027-03-28 01:00, 2027-10-31 01:00
# quarters, months, years
0 0 1 */3 * | 2026-01-01 00:00 | 2026-04-01 00:00, 2026-07-01 00:00, 2026-10-01 00:00, 2027-01-01 00:00
0 0 1 1,4,7,10 * | 2026-02-01 00:00 | 2026-04-01 00:00, 2026-07-01 00:00
0 0 1 JAN,APR,JUL,OCT * | 2026-10-01 00:00 | 2027-01-01 00:00
0 0 L 3/3 * | 2026-01-01 00:00 | 2026-03-31 00:00, 2026-06-30 00:00, 2026-09-30 00:00, 2026-12-31 00:00
0 0 1 1 * | 2026-01-01 00:00 | 2027-01-01 00:00, 2028-01-01 00:00
0 0 25 12 * | 2026-01-01 00:00 | 2026-12-25 00:00
0 0 1 JUN-AUG * | 2026-01-01 00:00 | 2026-06-01 00:00, 2026-07-01 00:00, 2026-08-01 00:00, 2027-06-01 00:00
0 0 1 */12 * | 2026-01-01 00:00 | 2027-01-01 00:00
0 0 15 * * | 2026-01-15 00:00 | 2026-02-15 00:00
0 0 31 * * | 2026-01-01 00:00 | 2026-01-31 00:00, 2026-03-31 00:00, 2026-05-31 00:00, 2026-07-31 00:00, 2026-08-31 00:00
0 0 30 * * | 2026-01-30 00:00 | 2026-03-30 00:00, 2026-04-30 00:00
0 0 30,31 2,3 * | 2026-01-01 00:00 | 2026-03-30 00:00, 2026-03-31 00:00, 2027-03-30 00:00
0 0 */10 * * | 2026-01-01 00:00 | 2026-01-11 00:00, 2026-01-21 00:00, 2026-01-31 00:00, 2026-02-01 00:00
0 0 1-3 * * | 2026-01-03 00:00 | 2026-02-01 00:00, 2026-02-02 00:00
# leap years
0 0 29 2 * | 2026-01-01 00:00 | 2028-02-29 00:00, 2032-02-29 00:00, 2036-02-29 00:00
0 0 29 2 * | 2096-02-29 00:00 | 2104-02-29 00:00
0 0 29 2 * | 1999-01-01 00:00 | 2000-02-29 00:00
0 0 29 FEB * | 2028-02-28 23:59 | 2028-02-29 00:00
0 0 29 * * | 2026-01-29 00:00 | 2026-03-29 00:00
0 0 29 * * | 2028-01-29 00:00 | 2028-02-29 00:00
# day of month and day of week: either matches, but both if one begins with *
0 0 13 * FRI | 2026-01-01 00:00 | 2026-01-02 00:00, 2026-01-09 00:00, 2026-01-13 00:00, 2026-01-16 00:00
0 0 1,15 * MON | 2026-01-10 00:00 | 2026-01-12 00:00, 2026-01-15 00:00, 2026-01-19 00:00
0 0 1-7 * MON | 2026-01-07 00:00 | 2026-01-12 00:00, 2026-01-19 00:00, 2026-01-26 00:00, 2026-02-01 00:00
0 0 */2 * MON | 2026-01-01 00:00 | 2026-01-05 00:00, 2026-01-19 00:00, 2026-02-09 00:00
0 0 13 * */5 | 2026-01-01 00:00 | 2026-02-13 00:00, 2026-03-13 00:00, 2026-09-13 00:00, 2026-11-13 00:00
0 0 30 2 MON | 2026-01-01 00:00 | 2026-02-02 00:00, 2026-02-09 00:00
0 0 L * FRI | 2026-01-24 00:00 | 2026-01-30 00:00, 2026-01-31 00:00, 2026-02-06 00:00
# short names
@hourly | 2026-01-01 00:30 | 2026-01-01 01:00, 2026-01-01 02:00
@daily | 2026-01-01 00:00 | 2026-01-02 00:00
@midnight | 2026-01-01 00:00 | 2026-01-02 00:00
@weekly | 2026-01-01 00:00 | 2026-01-04 00:00
@monthly | 2026-01-01 00:00 | 2026-02-01 00:00
@yearly | 2026-01-01 00:00 | 2027-01-01 00:00
@annually | 2026-01-01 00:00 | 2027-01-01 00:00
@DAILY | 2026-01-01 00:00 | 2026-01-02 00:00
# six fields
*/15 * * * * * | 2026-01-01 00:00:00 | 2026-01-01 00:00:15, 2026-01-01 00:00:30, 2026-01-01 00:00:45, 2026-01-01 00:01:00
0 0 12 * * * | 2026-01-01 12:00:00 | 2026-01-02 12:00:00
30 0 12 * * * | 2026-01-01 12:00:00 | 2026-01-01 12:00:30, 2026-01-02 12:00:30
10,50 0 12 * * * | 2026-01-01 12:00:10 | 2026-01-01 12:00:50, 2026-01-02 12:00:10
59 59 23 31 12 * | 2026-01-01 00:00:00 | 2026-12-31 23:59:59
* * * * * * | 2026-12-31 23:59:58 | 2026-12-31 23:59:59, 2027-01-01 00:00:00
5 */10 * * * MON | 2026-01-04 23:59:00 | 2026-01-05 00:00:05, 2026-01-05 00:10:05
"""

# text | zone | after | next runs, with the offset. Clocks change in 2026 in Paris on
# 29 March 02:00 and 25 October 03:00, in New York on 8 March 02:00 and 1 November 02:00,
# on Lord Howe on 5 April 02:00 and 4 October 02:00 by half an hour, in Santiago on
# 5 April 00:00 and 6 September 00:00, in Nuuk on 28 March 23:00.
ON_CHANGE_DAYS = """
30 2 * * * | Europe/Paris | 2026-03-28 12:00 | 2026-03-29 03:00+02:00, 2026-03-30 02:30+02:00
0 2 * * * | Europe/Paris | 2026-03-28 12:00 | 2026-03-29 03:00+02:00, 2026-03-30 02:00+02:00
59 2 * * * | Europe/Paris | 2026-03-28 12:00 | 2026-03-29 03:00+02:00, 2026-03-30 02:59+02:00
0 3 * * * | Europe/Paris | 2026-03-28 12:00 | 2026-03-29 03:00+02:00, 2026-03-30 03:00+02:00
0,30 2 * * * | Europe/Paris | 2026-03-28 12:00 | 2026-03-29 03:00+02:00, 2026-03-30 02:00+02:00
0 2,3 * * * | Europe/Paris | 2026-03-28 12:00 | 2026-03-29 03:00+02:00, 2026-03-30 02:00+02:00
30 1-3 * * * | Europe/Paris | 2026-03-29 00:00 | 2026-03-29 01:30+01:00, 2026-03-29 03:00+02:00, 2026-03-29 03:30+02:00
0 30 2 * * * | Europe/Paris | 2026-03-28 12:00 | 2026-03-29 03:00+02:00, 2026-03-30 02:30+02:00
*/20 2 * * * | Europe/Paris | 2026-03-28 12:00 | 2026-03-30 02:00+02:00, 2026-03-30 02:20+02:00
*/30 * * * * | Europe/Paris | 2026-03-29 01:00 | 2026-03-29 01:30+01:00, 2026-03-29 03:00+02:00
30 * * * * | Europe/Paris | 2026-03-29 01:00 | 2026-03-29 01:30+01:00, 2026-03-29 03:30+02:00
0 */2 * * * | Europe/Paris | 2026-03-29 00:00 | 2026-03-29 04:00+02:00
30 2 * * * | Europe/Paris | 2026-10-24 12:00 | 2026-10-25 02:30+02:00, 2026-10-26 02:30+01:00
0 2 * * * | Europe/Paris | 2026-10-24 12:00 | 2026-10-25 02:00+02:00, 2026-10-26 02:00+01:00
0 3 * * * | Europe/Paris | 2026-10-24 12:00 | 2026-10-25 03:00+01:00, 2026-10-26 03:00+01:00
0,30 2 * * * | Europe/Paris | 2026-10-24 12:00 | 2026-10-25 02:00+02:00, 2026-10-25 02:30+02:00, 2026-10-26 02:00+01:00
0 30 2 * * * | Europe/Paris | 2026-10-24 12:00 | 2026-10-25 02:30+02:00, 2026-10-26 02:30+01:00
*/30 * * * * | Europe/Paris | 2026-10-25 01:30 | 2026-10-25 02:00+02:00, 2026-10-25 02:30+02:00, 2026-10-25 02:00+01:00, 2026-10-25 02:30+01:00, 2026-10-25 03:00+01:00
30 * * * * | Europe/Paris | 2026-10-25 02:00 | 2026-10-25 02:30+02:00, 2026-10-25 02:30+01:00, 2026-10-25 03:30+01:00
*/30 2 25 10 * | Europe/Paris | 2026-10-25 02:15 | 2026-10-25 02:30+02:00, 2026-10-25 02:00+01:00, 2026-10-25 02:30+01:00, 2027-10-25 02:00+02:00
30 2 * * * | America/New_York | 2026-03-07 12:00 | 2026-03-08 03:00-04:00, 2026-03-09 02:30-04:00
30 1 * * * | America/New_York | 2026-10-31 12:00 | 2026-11-01 01:30-04:00, 2026-11-02 01:30-05:00
15 2 * * * | Australia/Lord_Howe | 2026-10-03 12:00 | 2026-10-04 02:30+11:00, 2026-10-05 02:15+11:00
45 1 * * * | Australia/Lord_Howe | 2026-04-04 12:00 | 2026-04-05 01:45+11:00, 2026-04-06 01:45+10:30
*/10 3 * * * | Australia/Lord_Howe | 2026-10-03 12:00 | 2026-10-04 03:00+11:00, 2026-10-04 03:10+11:00
*/10 2 * * * | Australia/Lord_Howe | 2026-04-04 12:00 | 2026-04-05 02:00+10:30, 2026-04-05 02:10+10:30
0 0 * * * | America/Santiago | 2026-09-05 12:00 | 2026-09-06 01:00-03:00, 2026-09-07 00:00-03:00
*/20 1 * * SUN | America/Santiago | 2026-09-05 12:00 | 2026-09-06 01:00-03:00, 2026-09-06 01:20-03:00
*/20 0 * * SUN | America/Santiago | 2026-09-05 12:00 | 2026-09-13 00:00-03:00
30 23 * * * | America/Santiago | 2026-04-04 12:00 | 2026-04-04 23:30-03:00, 2026-04-05 23:30-04:00
30 23 * * * | America/Nuuk | 2026-03-28 12:00 | 2026-03-29 00:00-01:00, 2026-03-29 23:30-01:00
0 9 * * * | Asia/Kathmandu | 2026-01-01 00:00 | 2026-01-01 09:00+05:45
0 9 * * MON | Asia/Tokyo | 2026-01-01 00:00 | 2026-01-05 09:00+09:00
0 0 1 * * | Pacific/Kiritimati | 2026-01-01 00:00 | 2026-02-01 00:00+14:00
0 9 * * * | Pacific/Apia | 2011-12-28 12:00 | 2011-12-29 09:00-10:00, 2011-12-31 00:00+14:00, 2011-12-31 09:00+14:00
"""

WALKED_TEXTS = """
* * * * * |*/5 * * * * |0,30 * * * * |7 * * * * |*/7 1-3 * * * |* 2 * * *
0 */2 * * * |30 */3 * * * |5-55/10 0-5 * * * |0 0 * * * |30 0 * * * |45 1 * * *
15 2 * * * |30 2 * * * |0 3 * * * |30 23 * * * |0 0-23 * * * |10,40 0-4 * * *
*/20 0 * * SUN |*/20 1 * * SUN |0 9 * * MON-FRI |*/30 9-17 * * 1-5 |30 2 * * 0 |30 1 * * SUN
0 0 1 * * |30 2 L * * |0 17 LW * * |15 2 * * MON#1 |45 2 * * 7L |0 0 13 * FRI
0 0 */10 * 1 |30 2 1 1,4,7,10 * |0 12 29 2 * |0 2 * 3,10 SUN |30 2 * 4,9 0 |0 0 1 1 *
*/20 * * * * * |15 30 2 * * * |5,35 30 2 * * * |30 */10 * * * * |10 0 0 * * SUN |0 15 2 * * *
"""
PLACES = [
    ("UTC", "2027-12-31 23:50"),
    ("Europe/Paris", "2026-03-28 22:17"),
    ("Europe/Paris", "2026-10-24 21:40"),
    ("America/New_York", "2027-03-13 20:05"),
    ("Australia/Lord_Howe", "2026-10-03 22:30"),
    ("Australia/Lord_Howe", "2026-04-04 23:59"),
    ("America/Santiago", "2026-09-05 23:00"),
    ("Asia/Kathmandu", "2028-02-28 23:00"),
]


def rows(table: str, columns: int) -> list[tuple[str, ...]]:
    lines = [line for line in table.strip().splitlines() if not line.startswith("# ")]
    found = [tuple(cell.strip() for cell in line.split("|")) for line in lines]
    assert all(len(row) == columns for row in found)
    return found


def expected(cell: str, zone: str) -> list[datetime]:
    times = [datetime.fromisoformat(time.strip()) for time in cell.split(",")]
    return [
        time if time.tzinfo else time.replace(tzinfo=ZoneInfo(zone)) for time in times
    ]


def next_runs(cron: Cron, after: datetime, count: int) -> list[datetime]:
    found = [cron.next(after)]
    while len(found) < count:
        found.append(cron.next(found[-1]))
    return found


def previous_runs(cron: Cron, before: datetime, count: int) -> list[datetime]:
    found = [cron.prev(before)]
    while len(found) < count:
        found.append(cron.prev(found[-1]))
    return found


def check(text: str, zone: str, after: datetime, wanted: list[datetime]) -> None:
    """Compare forwards and backwards."""
    cron = Cron(text, tz=zone)
    # As text, since in an hour that occurs twice times of two zones are never equal.
    shown = [str(run.astimezone(ZoneInfo(zone))) for run in wanted]
    assert [str(run) for run in next_runs(cron, after, len(wanted))] == shown
    just_after = wanted[-1].astimezone(UTC) + timedelta(microseconds=1)
    found = previous_runs(cron, just_after, len(wanted))
    assert [str(run) for run in found] == shown[::-1]


@pytest.mark.proves("M155", "L39")
@pytest.mark.parametrize(("text", "after", "runs"), rows(CALENDAR, 3))
def test_runs_by_the_calendar(text: str, after: str, runs: str) -> None:
    check(text, "UTC", *expected(after, "UTC"), expected(runs, "UTC"))


@pytest.mark.proves("M153", "M162")
@pytest.mark.parametrize(("text", "zone", "after", "runs"), rows(ON_CHANGE_DAYS, 4))
def test_runs_when_clocks_change(text: str, zone: str, after: str, runs: str) -> None:
    check(text, zone, *expected(after, zone), expected(runs, zone))


WALKED = [
    text.strip() for text in WALKED_TEXTS.replace("\n", "|").strip("|").split("|")
]


@pytest.mark.parametrize("text", WALKED)
def test_runs_as_a_walk_through_real_time_finds_them(text: str) -> None:
    count = 9 if text.startswith(("*", "0,30")) else 2
    for zone, after in PLACES:
        (start,) = expected(after, zone)
        check(text, zone, start, walk(text, zone, start, count))


def test_the_tables_are_large() -> None:
    reasoned = len(rows(CALENDAR, 3)) + len(rows(ON_CHANGE_DAYS, 4))
    assert reasoned >= 120
    assert len({*WALKED}) * len({*PLACES}) >= 300


# --- the walk


@cache
def values(field: str, low: int, high: int) -> frozenset[int]:
    found: set[int] = set()
    for item in field.split(","):
        body, _, step = item.partition("/")
        start, _, end = ("*" if body == "*" else body).partition("-")
        first = low if start == "*" else int(NAMES.get(start, start))
        last = int(NAMES.get(end, end)) if end else first
        last = high if start == "*" or (step and not end) else last
        found |= set(range(first, last + 1, int(step or 1)))
    return frozenset(found)


def is_weekday(month: date, day: int) -> bool:
    return month.replace(day=day).isoweekday() <= 5


@cache
def day_matches(fields: tuple[str, ...], day: date) -> bool:
    days, months, weekdays = fields
    if day.month not in values(months, 1, 12):
        return False
    length = calendar.monthrange(day.year, day.month)[1]
    if days == "L":
        by_day = day.day == length
    elif days == "LW":
        weekdays_left = [n for n in range(day.day, length + 1) if is_weekday(day, n)]
        by_day = weekdays_left == [day.day]
    else:
        by_day = day.day in values(days, 1, 31)
    number = day.isoweekday() % 7
    if weekdays.endswith("L"):
        by_weekday = number == int(weekdays[0]) % 7 and day.day + 7 > length
    elif "#" in weekdays:
        name, nth = weekdays.split("#")
        by_weekday = number == int(NAMES[name]) and (day.day - 1) // 7 + 1 == int(nth)
    else:
        by_weekday = number in {n % 7 for n in values(weekdays, 0, 6)}
    both = days.startswith("*") or weekdays.startswith("*")
    return by_day and by_weekday if both else by_day or by_weekday


@cache
def is_near(fields: tuple[str, ...], day: date) -> bool:
    return any(day_matches(fields, day + timedelta(days=n)) for n in (-1, 0, 1))


def walk(text: str, zone: str, after: datetime, count: int) -> list[datetime]:
    """Go through real time by quarters of an hour: clocks change only between them.

    A text with fixed times runs in a minute if one of the wall times that the clock
    reaches in it for the first time matches; all others run if the shown one does.
    """
    fields = text.split()
    second, minute, hour, *rest = fields if len(fields) == 6 else ["0", *fields]
    seconds, minutes = sorted(values(second, 0, 59)), values(minute, 0, 59)
    hours, dates = values(hour, 0, 23), tuple(rest)
    is_fixed = not minute.startswith("*") and not hour.startswith("*")

    def matches(wall: datetime) -> bool:
        is_time = wall.minute in minutes and wall.hour in hours
        return is_time and day_matches(dates, wall.date())

    found: list[datetime] = []
    start = after.astimezone(UTC).replace(second=0)
    quarter = start - timedelta(days=1, minutes=start.minute % 15)
    reached = datetime.min  # noqa: DTZ901 - wall times have no zone
    while len(found) < count:
        wall = quarter.astimezone(ZoneInfo(zone)).replace(tzinfo=None)
        if not is_near(dates, wall.date()):
            quarter += timedelta(hours=23)
            reached = datetime.min  # noqa: DTZ901 - as above
            continue
        if wall.hour not in hours and reached + MINUTE >= wall:
            quarter += timedelta(minutes=15)
            reached = max(reached, wall + 14 * MINUTE)
            continue
        for n in range(15):
            shown = wall + n * MINUTE
            due = [shown]
            if is_fixed and reached != datetime.min:  # noqa: DTZ901 - as above
                new = max(0, (shown - reached) // MINUTE)
                due = [reached + k * MINUTE for k in range(1, new + 1)]
            if any(map(matches, due)):
                run = quarter + n * MINUTE
                found += [run + timedelta(seconds=s) for s in seconds]
            reached = max(reached, shown)
        quarter += timedelta(minutes=15)
        found = [run for run in found if run > after.astimezone(UTC)]
    return found[:count]
