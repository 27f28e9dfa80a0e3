package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// tick is the unit of the times in /proc: USER_HZ, which Linux fixes at 100 for user space (proc(5)).
const tick = 10 * time.Millisecond

// cpuTime returns the processor time that a process has used so far, its ended threads included.
func cpuTime(pid int) (time.Duration, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, fmt.Errorf("read processor time: %w", err)
	}
	return parseStat(stat)
}

// parseStat reads utime and stime, fields 14 and 15 of proc(5). The name in field 2 may hold blanks and brackets.
func parseStat(stat []byte) (time.Duration, error) {
	i := bytes.LastIndexByte(stat, ')')
	if i < 0 {
		return 0, errors.New("parse stat: no name")
	}
	fields := strings.Fields(string(stat[i+1:]))
	const utime, stime = 14 - 3, 15 - 3
	if len(fields) <= stime {
		return 0, errors.New("parse stat: too short")
	}
	var sum time.Duration
	for _, field := range []string{fields[utime], fields[stime]} {
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("parse stat: %w", err)
		}
		sum += time.Duration(n) * tick
	}
	return sum, nil
}

// machineBusy returns the processor time that everything on the machine has used so far, waiting and stolen time
// left out.
func machineBusy() (time.Duration, error) {
	stat, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, fmt.Errorf("read the machine's processor time: %w", err)
	}
	first, _, _ := strings.Cut(string(stat), "\n")
	fields := strings.Fields(first)
	// cpu user nice system idle iowait irq softirq steal ...
	if len(fields) < 8 || fields[0] != "cpu" {
		return 0, fmt.Errorf("parse /proc/stat: %q", first)
	}
	var sum time.Duration
	for _, i := range []int{1, 2, 3, 6, 7} {
		n, err := strconv.ParseInt(fields[i], 10, 64)
		if err != nil {
			return 0, fmt.Errorf("parse /proc/stat: %w", err)
		}
		sum += time.Duration(n) * tick
	}
	return sum, nil
}

// memory returns a field of /proc/PID/status in bytes, such as RssAnon.
func memory(pid int, field string) (int64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, fmt.Errorf("read memory: %w", err)
	}
	return parseStatus(string(status), field)
}

func parseStatus(status, field string) (int64, error) {
	for line := range strings.Lines(status) {
		rest, ok := strings.CutPrefix(line, field+":")
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("parse %s: %w", field, err)
		}
		return n << 10, nil
	}
	return 0, fmt.Errorf("status has no %s", field)
}

// loadAverage returns the machine's run queue over the last minute.
func loadAverage() (string, error) {
	avg, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "", fmt.Errorf("read the load average: %w", err)
	}
	first, _, _ := strings.Cut(string(avg), " ")
	return first, nil
}
