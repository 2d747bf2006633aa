// One picture from thumbcached, in Go, with redigo (apt install golang-go golang-github-gomodule-redigo-dev).
//
//	GO111MODULE=off GOPATH=/usr/share/gocode go build avatar.go && ./avatar USER PROFILE COPY [PICTURE]
//
// Logs USER in, writes the picture of PROFILE to the file COPY, logs USER out, and asks once more. The picture is
// the file PICTURE if there is one, otherwise the daemon downloads it. THUMBCACHED_SOCKET names the daemon's socket.
// The exit status is 0 when all went well, 4 if there is no picture, 2 for a wrong command line, else 1.
package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/gomodule/redigo/redis"
)

// end says why the program ends, if there is a reason.
func end(status int, reason error) {
	if reason != nil {
		fmt.Fprintln(os.Stderr, "avatar:", reason)
		os.Exit(status)
	}
}

func main() {
	if len(os.Args) != 4 && len(os.Args) != 5 {
		end(2, errors.New("usage: avatar USER PROFILE COPY [PICTURE]"))
	}
	user, profile, target := os.Args[1], os.Args[2], os.Args[3]
	path, isSet := os.LookupEnv("THUMBCACHED_SOCKET")
	if !isSet {
		path = "/run/thumbcached/thumbcached.sock"
	}
	daemon, err := redis.Dial("unix", path)
	end(1, err)

	// From here to the log-out there is a cache of this user. With HOLD it also ends with this connection, should the
	// program end on the way.
	_, err = daemon.Do("LOGIN", user, "HOLD")
	end(1, err)
	if len(os.Args) == 5 {
		picture, err := os.ReadFile(os.Args[4])
		end(1, err)
		_, err = daemon.Do("PUT", user, profile, picture)
		end(1, err)
	}
	// Bytes makes an error of a reply that is null.
	image, missing := redis.Bytes(daemon.Do("GET", user, profile))
	if missing != redis.ErrNil {
		end(1, missing)
		end(1, os.WriteFile(target, image, 0o666))
		fmt.Printf("%d bytes written to %s\n", len(image), target)
	}

	// The receipt, an array of names and values in turn, says that nothing can be read any more.
	receipt, err := redis.Values(daemon.Do("LOGOUT", user))
	end(1, err)
	for i := 0; i+1 < len(receipt); i += 2 {
		if name, _ := redis.String(receipt[i], nil); name == "users" {
			fmt.Printf("caches ended: %d\n", receipt[i+1])
		}
	}
	_, err = daemon.Do("GET", user, profile)
	if err == nil || !strings.HasPrefix(err.Error(), "NOLOGIN") {
		end(1, errors.New("the cache is still there"))
	}
	fmt.Println("asked again: NOLOGIN")
	if missing != nil {
		end(4, errors.New("there is no picture"))
	}
}
