package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// stopTimeout is what a child gets between being asked to end and SIGKILL: more than sidehook gives attempts that hang.
const stopTimeout = 30 * time.Second

// roles are the parts that the benchmark plays itself, each as a process of its own, so that what one of them costs can
// be told from what the others cost. They read a start signal from stdin, end with it, and speak one line at a time.
var roles = map[string]func(args []string, stdin io.Reader, stdout io.Writer) error{
	"load":      loadMain,
	"app":       appMain,
	"allow-all": allowAllMain,
	"receiver":  receiverMain,
	"post":      postMain,
	"accept":    acceptMain,
	"client":    clientMain,
	"fill":      fillMain,
}

// child is a running process of this benchmark's. It is for one goroutine.
type child struct {
	name  string
	cmd   *exec.Cmd
	stdin io.WriteCloser
	lines *bufio.Scanner
}

// startRole runs this program again in one of its roles.
func startRole(ctx context.Context, role string, args ...string) (*child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	cmd := exec.CommandContext(ctx, self, append([]string{role}, args...)...)
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", role, err)
	}
	return &child{name: role, cmd: cmd, stdin: stdin, lines: bufio.NewScanner(stdout)}, nil
}

// startProgram runs another program with its output in the file log; it is ended with SIGTERM.
func startProgram(ctx context.Context, name, log, binary string, args ...string) (*child, error) {
	out, err := os.Create(log)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	return &child{name: name, cmd: cmd}, nil
}

func (c *child) pid() int { return c.cmd.Process.Pid }

// line returns the next line that the child says.
func (c *child) line() (string, error) {
	if c.lines.Scan() {
		return c.lines.Text(), nil
	}
	err := c.lines.Err()
	if err == nil {
		err = io.ErrUnexpectedEOF
	}
	return "", errors.Join(fmt.Errorf("read from %s: %w", c.name, err), c.stop())
}

// stop asks the child to end, insists after stopTimeout, and waits for it. Calling it again is harmless.
func (c *child) stop() error {
	if c.cmd.ProcessState != nil {
		return nil
	}
	var err error
	if c.stdin != nil {
		err = c.stdin.Close()
	} else {
		err = c.cmd.Process.Signal(syscall.SIGTERM)
	}
	if errors.Is(err, os.ErrProcessDone) || errors.Is(err, os.ErrClosed) {
		err = nil
	}
	insist := time.AfterFunc(stopTimeout, func() { c.cmd.Process.Kill() })
	defer insist.Stop()
	if waitErr := c.cmd.Wait(); waitErr != nil {
		err = errors.Join(err, fmt.Errorf("%s: %w", c.name, waitErr))
	}
	return err
}
